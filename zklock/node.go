package zklock

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// The parts of nodes' names that precede their numbers, as Curator's recipes have them.
const (
	nodeBase  = "lock-"    // of every contender of dlock, and of an InterProcessMutex
	readBase  = "__READ__" // of a reader of an InterProcessReadWriteLock
	writeBase = "__WRIT__" // of its writer; both have the same length
	leaseBase = "lease-"   // of a holder of an InterProcessSemaphoreV2
)

// unfairNode is the node of the order Unfair. It sorts before all others, as text and as a number.
// It holds the lock only if it found no other contender when it was created.
const unfairNode = nodeBase + "0"

// newID returns a UUID, by which the store finds a node if its creation is unanswered.
func newID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails: it ends the program instead
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// nodePrefix returns how the names of all nodes of a hold begin.
func nodePrefix(id string) string { return "_c_" + id + "-" }

// fairNodePrefix returns the name of a contender's node of the order Fair, up to its number. A
// permit's name contains its limit.
func fairNodePrefix(id string, mode driver.Mode) string {
	if mode.Limit > 0 {
		return nodePrefix(id) + strconv.Itoa(mode.Limit) + "-" + nodeBase
	}
	return nodePrefix(id) + nodeBase
}

// extraPrefix returns the name of a hold's second node of the order Fair, up to its number: the
// lease node of a permit, or a companion, which Curator's read-write locks see. They ignore lock-.
func extraPrefix(id string, mode driver.Mode) string {
	switch {
	case mode.Limit > 0:
		return leasesParent + "/" + nodePrefix(id) + leaseBase
	case mode.Shared:
		return nodePrefix(id) + readBase
	}
	return nodePrefix(id) + writeBase
}

// anchorName returns the name of the node that is created and removed together with lock-0. The
// name is used once, and ZooKeeper removes no container with a node in it: while the anchor exists,
// the container is the same, and its version has not restarted. An anchor is no contender, but
// Curator's read-write locks see their first writer in it.
func anchorName(id string) string { return nodePrefix(id) + writeBase + "0" }

// isAnchor reports whether a node is an anchor: all other numbers have ten digits.
func isAnchor(node string) bool { return strings.HasSuffix(node, writeBase+"0") }

// isLockNode reports whether a node is lock-0, or has the number that ZooKeeper appends to the
// names of sequential nodes, of ten digits. Others, such as deadlock-info, are of other programs.
func isLockNode(node string) bool {
	_, ok := number(node)
	return node == unfairNode || ok && strings.Contains(node, nodeBase) && len(sortKey(node)) >= 10
}

// hasID reports whether a node's name contains an ID. Such a name is used once, also if the
// numbers of the container restart.
func hasID(node string) bool { return strings.HasPrefix(node, "_c_") }

const idLength = 36 // of a UUID

// prefixOf returns the beginning of a node's name, up to and with its UUID, or an empty text.
func prefixOf(node string) string {
	if n := len(nodePrefix("")) + idLength; hasID(node) && len(node) > n && node[n-1] == '-' {
		return node[:n]
	}
	return ""
}

// sortKey returns what a node is ordered by, as text, as in Curator.
func sortKey(node string) string {
	for _, base := range []string{nodeBase, readBase, writeBase, leaseBase} {
		if at := strings.LastIndex(node, base); at >= 0 {
			node = node[at+len(base):]
		}
	}
	return node
}

// contender is a holder or a waiter.
type contender struct {
	node      string
	companion string // the node that Curator's read-write locks see; empty if there is none
	mode      driver.Mode
}

func (c *contender) nodes() []string {
	if c.companion == "" {
		return []string{c.node}
	}
	return []string{c.node, c.companion}
}

// queueOf returns the contenders in order. It leaves out all other nodes. A contender of dlock
// has a node with nodeBase and, with the same ID, a companion that tells its mode.
func queueOf(children []string) []contender {
	var queue, companions []contender
	byPrefix := make(map[string]int, len(children))
	for _, child := range children {
		switch {
		case isLockNode(child):
			byPrefix[prefixOf(child)] = len(queue)
			queue = append(queue, contender{node: child, mode: driver.Mode{Limit: limitOf(child)}})
		case isAnchor(child):
		case strings.Contains(child, readBase), strings.Contains(child, writeBase):
			companions = append(companions, contender{node: child, mode: driver.Mode{Shared: strings.Contains(child, readBase)}})
		}
	}
	for _, c := range companions {
		prefix := prefixOf(c.node)
		if i, ok := byPrefix[prefix]; ok && prefix != "" && queue[i].companion == "" {
			queue[i].companion, queue[i].mode.Shared = c.node, c.mode.Shared
		} else {
			queue = append(queue, c) // a contender of Curator's read-write lock
		}
	}
	type keyed struct {
		key string
		contender
	}
	sorted := make([]keyed, len(queue)) // a queue may be long
	for i, c := range queue {
		sorted[i] = keyed{sortKey(c.node), c}
	}
	slices.SortFunc(sorted, func(a, b keyed) int {
		switch order := strings.Compare(a.key, b.key); {
		case order != 0:
			return order
		case a.mode.Shared == b.mode.Shared:
			return strings.Compare(a.node, b.node)
		case b.mode.Shared: // a reader of Curator that was a writer
			return -1
		}
		return 1
	})
	for i := range sorted {
		queue[i] = sorted[i].contender
	}
	return queue
}

// limitOf returns the limit in the name of a permit's node, and zero for others.
func limitOf(node string) int {
	prefix := prefixOf(node)
	if prefix == "" {
		return 0
	}
	limit, _, _ := strings.Cut(node[len(prefix):], "-"+nodeBase)
	n, _ := strconv.Atoi(limit) // zero unless the name contains a limit
	return n
}

// countHolders returns how many contenders at the beginning of a queue of locks have the lock.
func countHolders(queue []contender) int {
	n := 0
	for n < len(queue) && queue[n].mode.Shared {
		n++
	}
	return max(n, min(1, len(queue)))
}

// lastNumber is the largest sequence number of ZooKeeper. After it, ZooKeeper gives every
// node the same number, or negative ones, which sort before all others as text.
const lastNumber = 1<<31 - 1

// restartAt is the number from which on a container is removed whenever it has no children, so that
// its numbers restart at zero: early enough for a busy lock.
const restartAt = lastNumber - 100_000_000

// hasUniqueNumber reports whether no other node has the number of this node, and all
// earlier nodes have smaller ones.
func hasUniqueNumber(node string) bool {
	n, ok := number(node)
	return ok && n >= 0 && n < lastNumber
}

// isNearLastNumber reports whether the numbers have to restart soon.
func isNearLastNumber(node string) bool {
	n, ok := number(node)
	return ok && n >= restartAt
}

func number(node string) (int64, bool) {
	n, err := strconv.ParseInt(sortKey(node), 10, 64)
	return n, err == nil
}

// content is the data of a node: the holder's description, for people, and its TTL.
type content struct {
	driver.Holder
	ID  string `json:"id,omitempty"`     // identifies the holder of lock-0; other nodes have the ID in their name
	TTL int64  `json:"ttl_ms,omitempty"` // how long the lock lasts after its last renewal
}

func (c content) encode() []byte {
	b, _ := json.Marshal(c) // strings and numbers: cannot fail
	return b
}

// decode reads the data of any node. Data of another program become the holder's note.
func decode(data []byte) (c content) {
	if err := json.Unmarshal(data, &c); err != nil {
		return content{Holder: driver.DecodeHolder(string(data))}
	}
	return c
}

func (c content) ttl() time.Duration { return time.Duration(c.TTL) * time.Millisecond }
