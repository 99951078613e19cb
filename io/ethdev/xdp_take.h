// The contents of the map of xdp_program.bpf.c; C, since both sides read it.
#pragma once

#include <linux/types.h>

enum ina_xdp_what {
  INA_XDP_NOTHING = 0,   ///< as loaded: the kernel keeps all
  INA_XDP_ALL = 1,       ///< a port of the switch
  INA_XDP_DATAGRAMS = 2  ///< a worker: UDP over IPv4 to this address and port
};

struct ina_xdp_take {
  __u32 what;
  __be32 ip;
  __be16 udp_port;
  __u16 zero;
};
