"""Strangers and hostile tenants send frames of all kinds; a job beside them goes on, with right
sums.

    hostile_test.py INA_SWITCHD LOAD_WORKER INA_HOSTILE

A short version of ./dev bench hostile.
"""

import json
import sys
import tempfile
import unittest

import hostile
import namespaces
from hostile import Attacker, HostileBed, drops, job, more
from namespaces import DEADLINE_S, wait_until

INA_SWITCHD, LOAD_WORKER, INA_HOSTILE = sys.argv[1:4]
ELEMENTS = 5000
FRAMES = 2000  # of each attack
RATE_PPS = 50_000


class HostileTest(unittest.TestCase):
    def bed(self, control="", **options):
        folder = tempfile.TemporaryDirectory(prefix="ina-hostile-")
        self.addCleanup(folder.cleanup)
        more_config = "security: {tag: siphash}\n" if options.pop("tags", False) else ""
        bed = HostileBed(**options)
        self.addCleanup(bed.close)
        bed.start(INA_SWITCHD, folder.name, more_config, control)
        self.folder = folder.name
        return bed

    def victims(self, bed, times=-1, name="victim"):
        return [bed.victim(rank, LOAD_WORKER, name, ELEMENTS, times) for rank in range(2)]

    def attacker(self, bed):
        attacker = Attacker(bed, INA_HOSTILE, self.folder)
        self.addCleanup(attacker.close)
        return attacker

    def results(self, bed):
        return job(bed.status(), "victim")["results"]

    def expect_progress(self, bed):
        before = self.results(bed)
        wait_until("the victim's sums to go on", lambda: self.results(bed) > before + 50)

    def expect_ok(self, victims):
        victims[0].terminate()
        for victim in victims:
            text = victim.communicate(timeout=DEADLINE_S)[0]
            self.assertTrue(text.startswith("INA_OK"), text)
            self.assertEqual(victim.returncode, 0, text)

    def test_every_attack(self):
        bed = self.bed()
        victims = self.victims(bed)
        wait_until("sums", lambda: bed.status()["aggregator"]["results"] > 100)
        attacker = self.attacker(bed)
        seen = {}
        before = drops(bed.status())
        for attack in attacker.attacks:
            with self.subTest(attack=attack):
                attacker.send(attack, FRAMES, RATE_PPS)
                self.expect_progress(bed)
                after = drops(bed.status())
                seen[attack] = more(before, after)
                before = after
        # The attack's frames may arrive in two bursts, with the end of its job in between.
        for _ in range(20):
            if "job_aborted" in drops(bed.status()):
                break
            attacker.send("mismatch", FRAMES, 0)
        status = bed.status()
        missing = set(hostile.reasons()) - set(drops(status)) - set(hostile.UNREACHABLE)
        self.assertEqual(missing, set(), json.dumps(seen, indent=1))
        # In that job one worker claimed to be all workers.
        self.assertEqual(job(status, "tenant-lone")["results"], 0)
        self.check_reasons(seen)
        self.check_books(status)
        self.expect_ok(victims)
        self.assertEqual(bed.stop_switch(), 0, bed.log())

    def check_reasons(self, seen):
        """Each attack must cause its own drop reasons. An attack of one kind must cause no other
        reasons."""
        only = {"truncated": {"truncated"}, "version": {"version"}, "ip_checksum": {"ip_checksum"},
                "unknown": {"unknown_source"}, "stolen_key": {"unknown_source"},
                "spoofed": {"unknown_source"}, "replay": {"unknown_source", "foreign_source"},
                "mac_theft": {"foreign_source"}, "arp_poison": {"foreign_source"},
                "mac_flood": {"foreign_source"}, "bad_crc": {"crc"}, "other_jobs": {"unknown_source", "bad_job"},
                "epochs": {"stale_epoch", "future_epoch"}, "not_home": {"not_home"}}
        for attack, reasons in only.items():
            with self.subTest(attack=attack):
                # Hosts may send ICMP to the switch. Too many of ARP's requests are refused within a
                # second, which may include the attack before.
                self.assertEqual(set(seen[attack]) - {"not_ina", "asked"}, reasons)

    def check_books(self, status):
        """Each frame must be in exactly one counter."""
        on_output = {"too_long", "tx_full", "no_buffer"}
        for port in status["ports"]:
            if port["type"] != "ethdev":
                continue
            dropped = sum(n for reason, n in port["drops"].items() if reason not in on_output)
            fates = [port[key] for key in ("delivered", "answered", "forwarded", "flooded")]
            self.assertEqual(port["rx_packets"], sum(fates) + dropped, port)

    def test_connections_that_never_join(self):
        bed = self.bed()
        victims = self.victims(bed)
        wait_until("sums", lambda: bed.status()["aggregator"]["results"] > 100)
        attack = bed.attack_control(5)
        wait_until("connections to be refused", lambda: "have not joined yet" in bed.log())
        self.expect_progress(bed)
        # Another job comes and goes during the attack.
        others = self.victims(bed, 20, "other")
        for other in others:
            self.assertTrue(other.communicate(timeout=DEADLINE_S)[0].startswith("INA_OK"))
        did = json.loads(attack.communicate(timeout=DEADLINE_S)[0])
        self.assertGreater(did["connections"], 128)
        self.assertEqual([job["name"] for job in bed.status()["jobs"]], ["victim"])
        self.expect_ok(victims)

    def test_who_takes_others_addresses_gets_no_connection(self):
        """A dead peer is noticed after two seconds here, and the attack lasts longer."""
        bed = self.bed(control="dead_peer_timeout: 2 s")
        victims = self.victims(bed)
        wait_until("sums", lambda: bed.status()["aggregator"]["results"] > 100)
        attacker = self.attacker(bed)
        for attack in ("mac_theft", "arp_poison"):
            attacker.send(attack, 15_000, 3000)
        self.assertEqual(bed.status()["bridge"]["moved"], 0)
        self.expect_progress(bed)
        self.expect_ok(victims)

    def test_without_lists_of_hosts_sums_stay_right(self):
        """The bridge sends frames for the victims' addresses to the attacker. Results still go
        where workers are bound."""
        bed = self.bed(guarded=False)
        victims = self.victims(bed)
        wait_until("sums", lambda: bed.status()["aggregator"]["results"] > 100)
        attacker = self.attacker(bed)
        for attack in ("mac_theft", "arp_poison", "spoofed", "replay"):
            attacker.send(attack, FRAMES, RATE_PPS)
        self.assertGreater(bed.status()["bridge"]["moved"], 0)
        self.expect_progress(bed)
        # The hosts' own frames bring their addresses back. Until then their control connections are
        # dead.
        for host in (bed.switch, *bed.hosts):
            host.run("ip", "neighbour", "flush", "all")
        for number in hostile.VICTIMS:
            bed.hosts[number].ping(bed.kernel_ip)
        self.expect_ok(victims)

    def test_with_tags_the_victims_own_link_is_no_better(self):
        """Valid frames with keys, from a victim's host and from the other end of its link."""
        bed = self.bed(tags=True)
        victims = self.victims(bed)
        wait_until("sums", lambda: bed.status()["aggregator"]["results"] > 100)
        victim = bed.hosts[hostile.FIRST_VICTIM]
        for at, attacks in (((victim, victim.interface), ("spoofed", "replay")),
                            ((bed.switch, bed.port(hostile.FIRST_VICTIM)), ("forged_results",))):
            attacker = Attacker(bed, INA_HOSTILE, self.folder, at=at)
            self.addCleanup(attacker.close)
            for attack in attacks:
                before = drops(bed.status())
                attacker.send(attack, FRAMES, RATE_PPS)
                self.expect_progress(bed)
                if attack == "spoofed":  # a quarter of the frames has all addresses unchanged
                    self.assertGreater(more(before, drops(bed.status())).get("bad_tag", 0), 0)
            attacker.close()
        self.expect_ok(victims)

    def test_a_tenant_cannot_be_at_anothers_port(self):
        bed = self.bed()
        with self.assertRaisesRegex(RuntimeError, "list \\(hosts\\)"):
            hostile.Tenant(bed, "elsewhere", 30_000, 1, port=bed.port(hostile.FIRST_VICTIM))


if __name__ == "__main__":
    namespaces.require_root()
    unittest.main(argv=sys.argv[:1], verbosity=2)
