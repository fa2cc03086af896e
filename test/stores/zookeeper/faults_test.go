package zookeeper

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/faults"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/dlock-go/dlock/zklock"
)

// faultTTL is the TTL and the session's timeout, long enough for a busy machine.
const faultTTL = 3 * time.Second

// rig is the store with that URL.
func rig(url string) faults.Rig {
	return faults.Rig{
		TTL:  faultTTL,
		Open: func(context.Context) (driver.Store, error) { return zklock.Open(url) },
		Command: func() *exec.Cmd {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), urlEnv+"="+url)
			return cmd
		},
	}
}

func faultURL(addr, order string) string {
	return fmt.Sprintf("zookeeper://%s/%s?order=%s&timeout=%s", addr, order, order, faultTTL)
}

// acquires finds the requests that create a node and tell its number: ZooKeeper calls
// them multi. A request begins with its length, its own number and what it asks for.
func acquires(name string) func(request []byte) bool {
	const multi, header = 14, 12
	return func(request []byte) bool {
		return len(request) > header && binary.BigEndian.Uint32(request[8:]) == multi && bytes.Contains(request, []byte(name))
	}
}

// removes finds the requests that remove a node of the order Fair, also behind another
// request. Between what is asked for and the path is the path's length.
func removes(name string) func(request []byte) bool {
	const deletion, before = 2, 8
	return func(request []byte) bool {
		for i := range request {
			if i >= before && bytes.HasPrefix(request[i:], []byte("/"+name+"/")) && binary.BigEndian.Uint32(request[i-before:]) == deletion {
				return true
			}
		}
		return false
	}
}

// network are the faults of the network that fit. A waiter whose place is known
// sends nothing that an answer could be lost of when it is its turn.
func network(order string) []faults.Fault {
	return slices.DeleteFunc(slices.Clone(faults.Network), func(f faults.Fault) bool {
		return order == "fair" && f.Name == "a lost answer to an acquisition after a wait"
	})
}

func TestFaults(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeper)
	var both sync.WaitGroup
	for _, order := range []string{"fair", "unfair"} {
		at := func(addr string) faults.Rig { return rig(faultURL(addr, order)) }
		r := at(server.Addr())
		r.Addr, r.At, r.AsksAgain = server.Addr(), at, true
		list := slices.Concat(faults.Leases, network(order))
		if order == "fair" {
			list = append(list, faults.Fair...)
		}
		both.Go(func() { t.Run(order, func(t *testing.T) { faults.Run(t, r, list) }) })
	}
	both.Wait()
}
