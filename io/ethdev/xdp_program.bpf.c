// Which frames an AF_XDP socket takes from its interface. All others go on to the kernel, and so do
// those that would be for a socket that is gone.
#include <linux/bpf.h>
// bpf.h first: the helpers need its types.
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/udp.h>

#include "io/ethdev/xdp_take.h"

#define MAX_QUEUES 64
#define FRAGMENT_MASK 0x3fff  // "more fragments" and the offset

// DPDK's driver puts its sockets here, by the number of their queue.
struct {
  __uint(type, BPF_MAP_TYPE_XSKMAP);
  __type(key, __u32);
  __type(value, __u32);
  __uint(max_entries, MAX_QUEUES);
} xsks_map SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __type(key, __u32);
  __type(value, struct ina_xdp_take);
  __uint(max_entries, 1);
} ina_take SEC(".maps");

// The header's place depends on the frame, and only the helper may read there: pointers that depend
// on data take CAP_PERFMON.
static __always_inline int is_wanted(struct xdp_md* frame, const struct ina_xdp_take* take) {
  const void* const end = (const void*)(long)frame->data_end;
  const struct ethhdr* const ethernet = (const void*)(long)frame->data;
  const struct iphdr* const ip = (const void*)(ethernet + 1);
  if ((const void*)(ip + 1) > end || ethernet->h_proto != bpf_htons(ETH_P_IP)) return 0;
  if (ip->protocol != IPPROTO_UDP || ip->daddr != take->ip) return 0;
  if (ip->ihl < 5 || (ip->frag_off & bpf_htons(FRAGMENT_MASK)) != 0) return 0;
  struct udphdr udp;
  if (bpf_xdp_load_bytes(frame, sizeof(*ethernet) + ip->ihl * 4, &udp, sizeof(udp)) != 0) return 0;
  return udp.dest == take->udp_port;
}

SEC("xdp")
int ina_xdp(struct xdp_md* frame) {
  const __u32 first = 0;
  const struct ina_xdp_take* const take = bpf_map_lookup_elem(&ina_take, &first);
  if (!take || take->what == INA_XDP_NOTHING) return XDP_PASS;
  if (take->what == INA_XDP_DATAGRAMS && !is_wanted(frame, take)) return XDP_PASS;
  return bpf_redirect_map(&xsks_map, frame->rx_queue_index, XDP_PASS);
}

char ina_license[] SEC("license") = "BSD";
