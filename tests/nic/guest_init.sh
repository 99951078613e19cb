#!/bin/busybox sh
# Init of the guest: binds the first two NICs to vfio-pci, gives the others to two hosts (network
# namespaces w1 and w2), and runs the cases of /cases, one a line:
#   NAME MTU SLOT_BYTES VLAN BRIDGED LANES EVENT
# Lines of the console that begin with "@" are for the machine outside:
#   @ case NAME KEY=VALUE...   a result
#   @ do COMMAND               that it should do, and answer on the console
/bin/busybox mkdir -p /bin /proc /sys /dev /run /tmp /srv /var/run
/bin/busybox --install -s /bin
export PATH=/usr/bin:/bin:/ina LD_LIBRARY_PATH=/ina
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev; mount -t tmpfs run /run
mkdir -p /dev/shm /dev/hugepages /run/ina /run/netns
mount -t tmpfs shm /dev/shm
for module in $(cat /modules/order); do insmod "/modules/$module" || echo "no module $module"; done
chmod 755 /  # DPDK loads no drivers from below a folder that all may write
# Not busybox's, which knows no namespaces.
ip() { /usr/bin/ip "$@"; }

SOCKET=/run/ina/switch.sock
SWITCH_IP=10.0.0.254

# bind SLOT: gives a PCI device to vfio-pci.
bind() {
  device=/sys/bus/pci/devices/0000:00:$1.0
  [ ! -e "$device/driver" ] || echo "0000:00:$1.0" >"$device/driver/unbind"
  echo vfio-pci >"$device/driver_override"
  echo "0000:00:$1.0" >/sys/bus/pci/drivers_probe
}

in_host() {
  host=$1
  shift
  ip netns exec "w$host" "$@"
}

# A host is a namespace with one of the kernel's NICs.
make_hosts() {
  for host in 1 2; do
    interface=$(ls /sys/bus/pci/devices/0000:00:0$((host + 6)).0/virtio*/net)
    ip netns add "w$host"
    ip link set "$interface" netns "w$host" name eth0
    in_host $host ip link set lo up
    in_host $host ip link set eth0 up
  done
}

# address_hosts MTU VLAN: the addresses lie on eth0, or on its VLAN.
address_hosts() {
  for host in 1 2; do
    in_host $host ip link delete eth0.10 2>/dev/null
    in_host $host ip address flush dev eth0
    in_host $host ip link set eth0 mtu $(($1 + 4 * ($2 != 0)))
    on=eth0
    if [ "$2" != 0 ]; then
      on=eth0.10
      in_host $host ip link add link eth0 name $on type vlan id "$2"
      in_host $host ip link set $on mtu "$1" up
    fi
    in_host $host ip address add 10.0.0.$host/24 dev $on
  done
}

write_configuration() {
  vlans=''
  [ "$vlan" = 0 ] || vlans=", vlan: $vlan"
  [ "$vlan" = 0 ] || [ "$bridged" = false ] || vlans="$vlans, vlans: [0, $vlan]"
  cat >/run/switch.yaml <<YAML
aggregator: {policy: esa, slots: 64, slot_bytes: $slot_bytes}
switch: {lcores: $lanes, idle: yield}
eal: {memory: 64 MiB}
bridge: {enabled: $bridged}
control: {socket: $SOCKET}
ports:
  - {name: rack1, type: ethdev, ip: $SWITCH_IP, mtu: $mtu, device: "0000:00:05.0"$vlans}
  - {name: rack2, type: ethdev, ip: $SWITCH_IP, mtu: $mtu, device: "0000:00:06.0"$vlans}
YAML
}

start_switch() {
  ina-switchd --config /run/switch.yaml >>/run/switch.log 2>&1 &
  switch=$!
  tries=600
  until inactl status >/run/status 2>&1; do
    kill -0 $switch 2>/dev/null || return 1
    tries=$((tries - 1))
    [ $tries != 0 ] || return 1
    sleep 0.1
  done
}

stop_switch() {
  kill -INT $switch 2>/dev/null
  wait $switch
}

# start_work ITERATIONS: an all-reduce of both hosts, every sum of which is checked.
start_work() {
  for host in 1 2; do
    INA_URL="udp:$SWITCH_IP?control=$SOCKET&port=rack$host" INA_JOB=work INA_RANK=$((host - 1)) \
      INA_WORLD_SIZE=2 in_host $host ina-perf --sizes 4,64KiB,300000 --iterations "$1" --warmup 0 \
      --timeout 60s >/run/work.$host 2>&1 &
    eval work$host=$!
  done
}

# Sets correct.
finish_work() {
  correct=true
  for host in 1 2; do
    eval wait \$work$host || correct=false
  done
}

# Sets tcp: a page comes from the other host through the switch.
fetch_page() {
  tcp=false
  [ "$(in_host 1 timeout 60 nc 10.0.0.2 80 </dev/null | md5sum)" != "$(md5sum </srv/page)" ] || tcp=true
}

ask_outside() {
  echo "@ do $1"
  read -r answer </dev/console
}

# happen EVENT: while work is under way.
happen() {
  case $1 in
    link)
      ask_outside 'set_link n1 off'
      sleep 0.5
      ask_outside 'set_link n1 on'
      ;;
    kill)
      kill -KILL $switch
      wait $switch
      start_switch
      ;;
  esac
}

run_case() {
  name=$1 mtu=$2 slot_bytes=$3 vlan=$4 bridged=$5 lanes=$6 event=$7
  rm -rf /run/ina/* /run/switch.log /run/status /run/work.*
  address_hosts "$mtu" "$vlan"
  write_configuration
  correct=false tcp=-
  if start_switch; then
    if [ "$event" = - ]; then
      start_work 2
    else
      start_work 20
      sleep 1
      happen "$event"
    fi
    finish_work
    [ "$bridged" = false ] || fetch_page
    inactl status >/run/status 2>&1
  fi
  stop_switch
  echo "@ case $name correct=$correct tcp=$tcp at=$(cut -d' ' -f1 /proc/uptime)"
  [ $correct = true ] && [ $tcp != false ] || show_logs
}

show_logs() {
  dmesg | grep segfault
  for log in /run/switch.log /run/status /run/work.1 /run/work.2; do
    echo "--- $log"
    tail -n 15 $log
  done
}

bind 05
bind 06
make_hosts
head -c 300000 /dev/urandom >/srv/page
in_host 2 nc -ll -p 80 -e cat /srv/page &
echo "@ up at=$(cut -d' ' -f1 /proc/uptime)"
while read -r line; do
  run_case $line </dev/null
done </cases
sync
poweroff -f
