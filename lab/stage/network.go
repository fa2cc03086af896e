//go:build linux

package stage

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/dlock-go/dlock/test/harness/proxy"
)

// Namespace is a network namespace with a cable to the namespace of the servers. Packets can be lost
// in either direction without a word to the sender.
//
// The namespace has no name: it exists as long as a process is in it. Its keeper removes the cable
// and ends when this process closes the network, or ends for whatever reason.
type Namespace struct {
	Server string // the address of the servers, as processes in the namespace see them

	process string // the address of the processes in the namespace
	keeper  *Keeper
	outer   string // the ends of the cable: this one is with the servers,
	inner   string // and this one in the namespace
}

// The ends of the cable, and an address that none of them has: a frame to it is dropped by the
// end where it arrives, and the sender does not learn of it.
const (
	outerMAC = "02:64:6c:00:00:01"
	innerMAC = "02:64:6c:00:00:02"
	wrongMAC = "02:64:6c:00:00:03"
)

// networks counts the networks of this process.
var networks atomic.Int32

// NewNetwork creates a network namespace.
func NewNetwork() (*Namespace, error) {
	n := &Namespace{}
	if err := n.create(); err != nil {
		_ = n.Close() // the other error says why
		return nil, fmt.Errorf("a network namespace needs root (CAP_SYS_ADMIN and CAP_NET_ADMIN), "+
			"ip (package iproute2) and nsenter (package util-linux): %w", err)
	}
	return n, nil
}

func (n *Namespace) create() error {
	number := int(networks.Add(1))
	n.outer = fmt.Sprintf("dl%d-%d", os.Getpid(), number)
	n.inner = n.outer + "i"
	keeper, err := Keep(syscall.CLONE_NEWNET, `exec ip link delete "$1"`, n.inner)
	if err != nil {
		return fmt.Errorf("creating the namespace: %w", err)
	}
	n.keeper = keeper
	server, process, err := freeAddresses(os.Getpid()*16 + number)
	if err != nil {
		return err
	}
	n.Server, n.process = server.String(), process.String()
	return errors.Join(
		n.outside("link add", n.outer, "address", outerMAC, "type veth peer name", n.inner, "address", innerMAC, "netns", strconv.Itoa(keeper.cmd.Process.Pid)),
		n.outside("addr add", n.Server+"/30 dev", n.outer),
		n.outside("link set", n.outer, "up"),
		n.inside("addr add", n.process+"/30 dev", n.inner),
		n.inside("link set lo up"),
		n.inside("link set", n.inner, "up"),
		n.Heal(),
	)
}

// freeAddresses returns two addresses that share a network of four, in the range that is reserved
// for tests (RFC 2544) and not in use on this machine.
func freeAddresses(first int) (server, process netip.Addr, err error) {
	used, err := net.InterfaceAddrs()
	if err != nil {
		return server, process, err
	}
	const count = 1 << 15 // networks of four in 198.18.0.0/15
	for i := range count {
		at := (first + i) % count * 4
		base := netip.AddrFrom4([4]byte{198, byte(18 + at>>16), byte(at >> 8), byte(at)})
		server = base.Next()
		taken := false
		for _, addr := range used {
			taken = taken || strings.HasPrefix(addr.String(), server.String()+"/")
		}
		if !taken {
			return server, server.Next(), nil
		}
	}
	return server, process, errors.New("no address of 198.18.0.0/15 is free")
}

// Cut loses all packets in the given directions (default: both).
func (n *Namespace) Cut(directions ...proxy.Direction) error {
	if len(directions) == 0 {
		directions = []proxy.Direction{proxy.Requests, proxy.Replies}
	}
	var err error
	for _, d := range directions {
		if d == proxy.Requests {
			err = errors.Join(err, n.sendRequestsTo(wrongMAC))
		} else {
			err = errors.Join(err, n.sendRepliesTo(wrongMAC))
		}
	}
	return err
}

// Heal ends all cuts.
func (n *Namespace) Heal() error {
	return errors.Join(n.sendRequestsTo(outerMAC), n.sendRepliesTo(innerMAC))
}

func (n *Namespace) sendRequestsTo(mac string) error {
	return n.inside("neigh replace", n.Server, "lladdr", mac, "dev", n.inner, "nud permanent")
}

func (n *Namespace) sendRepliesTo(mac string) error {
	return n.outside("neigh replace", n.process, "lladdr", mac, "dev", n.outer, "nud permanent")
}

// outside and inside execute ip with those words, with the servers or in the namespace.
func (n *Namespace) outside(words ...string) error { return execute([]string{"ip"}, words) }
func (n *Namespace) inside(words ...string) error  { return execute(n.enter("ip"), words) }

func execute(command, words []string) error {
	command = append(command, strings.Fields(strings.Join(words, " "))...)
	if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(command, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// enter returns a command that runs another one in the namespace, in the same process.
func (n *Namespace) enter(command ...string) []string {
	return append([]string{"nsenter", fmt.Sprintf("--net=/proc/%d/ns/net", n.keeper.cmd.Process.Pid), "--"}, command...)
}

// Close removes the cable, and the namespace as soon as no process is in it.
func (n *Namespace) Close() error {
	if n.keeper == nil {
		return nil
	}
	return n.keeper.Close()
}
