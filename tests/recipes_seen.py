"""The tests that cause the error texts with recipes in docs/operations.md, except those in
tests/e2e/errors*_test.py. tests/recipes_test.py checks this list."""

# By a test's file: the text, and a literal of the file that is a part of the text.
ELSEWHERE = {
    "client/errors_test.cc": {
        "nobody serves the memif socket …": "nobody serves the memif socket",
    },
    "control/stream_test.cc": {
        "the other side of the control connection does not read": "does not read",
    },
    "control/tls_test.cc": {
        "closed the connection during the TLS handshake": "closed the connection during the TLS handshake",
        "did not finish the TLS handshake": "did not finish the TLS handshake",
    },
    "e2e/scarcity_test.py": {
        "the job was not made: …": "the job was not made: ",
    },
    "e2e/memif_bridge_users_test.cc": {
        "memif interface … of ina-memif has a worker already": "memif interface 0 of ina-memif has a worker already",
    },
    "e2e/own_trace_test.py": {
        "has traced for so long": "has traced for so long",
    },
    "e2e/systemd_test.py": {
        "journal needs journald": "needs journald",
    },
    "ethdev/ethernet_test.cc": {
        "no way to …": "no way to 192.0.2.1",
        "DPDK runs in this process without PCI devices": "Open the context of PCI device",
    },
    "e2e/trust_test.py": {
        "… is served by user …, who is neither root nor this user": "who is neither root nor this user",
    },
    "net/trees_test.py": {
        "is none of the switches that may join here": "control.switches_below",
        "joined at two switches": "joined at two switches",
        "places for jobs and groups": "places for jobs and groups",
        "the switch above (…) is lost to job": "is lost to job",
        "the switch below with … did not come back within …": "the switch below with",
        "uplink.token_file: …": "uplink.token_file",
    },
    "net/wire_test.py": {
        "it has an XDP program already": "it has an XDP program already",
    },
    "switchd/admin_sockets_test.cc": {
        "administrators are root, the switch's own user, and its admin.group": "administrators are root, the switch's own user",
        "there are as many connections of administrators as there may be": "there are as many connections of administrators as",
        "is no request of an administrator": "is no request of an administrator",
    },
    "switchd/administration_test.cc": {
        "neither a configuration file nor a token file": "neither a configuration file nor a token file",
        "this switch has no configuration that could be changed": "this switch has no configuration that could be changed",
    },
    "switchd/connections_test.cc": {
        "the switch needs the place of this connection": "needs the place of this connection",
        "no more places but for workers that come back": "come back to their jobs",
    },
    "switchd/fallback_server_test.cc": {
        "has a fallback server": "has a fallback server",
        "there is no place in it for the fallback server": "there is no place in it for the fallback ",
    },
    "switchd/preflight_test.cc": {
        "is used by the kernel's driver": "used by the kernel's driver",
        "has no driver": "has no driver",
    },
    "switchd/remote_test.cc": {
        "the switch traces another job": "the switch traces another job",
    },
    "switchd/remote_tls_test.cc": {
        "the certificate's common name is no tenant": "the certificate's common name is no tenant",
    },
    "switchd/restore_test.cc": {
        "switch.max_groups is smaller than it was": "switch.max_groups is smaller than it was",
    },
    "switchd/tracing_test.cc": {
        "packets are not in 1..…": "packets are not in 1..4096",
    },
    "switchd/ports_test.cc": {
        "behind which of the switch's ports this worker is cannot be told": "has not been seen lately",
    },
}

# Texts that no test causes, and the reasons.
NOT_MADE = {
    "a switch below is reached by an Ethernet port": "a switch asks for nothing else",
    "there is no group … that this switch may join": "takes a group that ends in the milliseconds in which a switch below hears of it",
    "group '…' has no place for …": "a switch below asks once, and for workers of its own",
    "the switch … was lost while group '…' was made": "takes a switch that ends in the milliseconds in which a group is made",
    "left while it gathered: join again": "takes a worker that leaves one switch, and joins another, while its job gathers",
    "the switch is starting again": "only in the milliseconds between the answer to a reload and the end of the switch",
    "the trace has ended: nobody asked for it in time": "only if a thread of the switch that asks by itself stands still for 5 s",
    "uses AF_PACKET already": "takes two workers in one process, with a switch behind their interface; net tests start a process for each",
    "Raise /proc/sys/vm/nr_hugepages": "the look at the machine says it before, unless others take the hugepages in between",
    "was built without": "of builds with other options",
    "this build has no Ethernet ports": "of a switch inside another program",
    "this library opens memif: and dpdk: only": "libina loads this library for these URLs alone",
    "the switch was restarted while this group was made": "only in the microseconds between two threads of a worker",
    "the group cannot come back: …": "takes a UDP port or descriptors that are lost between the return of a job and that of its group",
    "cannot send on the control connection: …": "a worker hears of the end of a connection before it sends",
    "cannot send": "likewise",
    "the switch is out of memory": "which allocation of the switch fails cannot be chosen from outside",
    "out of memory": "likewise",
    "the switch failed": "likewise",
    "cannot watch": "fs.epoll.max_user_watches is the whole machine's",
    "cannot replace": "which of two mappings of a worker fails cannot be chosen from outside",
    "its device has another number of queues than before": "takes an interface that is made again with other queues while a switch runs",
    "no thread for a packet loop": "the look at the limits of the process says it before, unless others start threads in between",
    "cannot allocate": "the look at the limits of the process says it before",
    "No eventfd": "DPDK takes descriptors before, and fails first",
}
