package zklock

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// nodeBase is part of the names of all contenders' nodes. Nodes are ordered by what follows
// its last occurrence.
const nodeBase = "lock-"

// unfairNode is the node of the order Unfair. It sorts before all others, as text and as a
// number.
const unfairNode = nodeBase + "0"

// newID returns a UUID, by which the store finds a node if the answer to its creation is lost.
func newID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails: it ends the program instead
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// fairNodePrefix returns the name of a node of the order Fair, up to its number.
func fairNodePrefix(id string) string { return "_c_" + id + "-" + nodeBase }

// anchorName returns the name of the node that is created and removed together with lock-0.
// The name is used once, and ZooKeeper removes no container with a node in it: while the
// anchor exists, the version of the container has not begun again. An anchor is no
// contender: Curator sorts it as text, and go-zookeeper's Lock by the number at its end,
// behind all others.
func anchorName(id string) string { return "_c_" + id + "__" + strconv.Itoa(lastNumber) }

// hasID reports whether a node's name contains an ID. Such a name is used once, also if the
// numbers of the container begin again.
func hasID(node string) bool { return strings.HasPrefix(node, "_c_") }

// sortKey returns what a node is ordered by, as text, as in Curator.
func sortKey(node string) string {
	parts := strings.Split(node, nodeBase)
	return parts[len(parts)-1]
}

// queueOf returns the contenders' nodes in order. It leaves out all other nodes.
func queueOf(children []string) []string {
	queue := slices.DeleteFunc(slices.Clone(children), func(child string) bool { return !strings.Contains(child, nodeBase) })
	slices.SortFunc(queue, func(a, b string) int {
		return cmp.Or(strings.Compare(sortKey(a), sortKey(b)), strings.Compare(a, b))
	})
	return queue
}

// lastNumber is the largest sequence number of ZooKeeper. After it, ZooKeeper gives every
// node the same number, or negative ones, which sort before all others as text.
const lastNumber = 1<<31 - 1

// renumberAt is the number from which on a container is removed whenever it is empty, so
// that its numbers begin again: early enough for a busy lock.
const renumberAt = lastNumber - 100_000_000

// hasUniqueNumber reports whether no other node has the number of this node, and all
// earlier nodes have smaller ones.
func hasUniqueNumber(node string) bool {
	n, ok := number(node)
	return ok && n >= 0 && n < lastNumber
}

// number returns the sequence number of a node.
func number(node string) (int64, bool) {
	n, err := strconv.ParseInt(sortKey(node), 10, 64)
	return n, err == nil
}

// content is the data of a node: the holder's description, for people, and its TTL.
type content struct {
	driver.Holder
	ID  string `json:"id,omitempty"`     // of lock-0, whose name does not contain it
	TTL int64  `json:"ttl_ms,omitempty"` // after the last renewal, while the process lives
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
