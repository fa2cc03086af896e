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

// mark is the base of all names of nodes. What follows its last occurrence is what
// nodes are ordered by.
const mark = "lock-"

// single is the node of the order Unfair. As text, and for those who compare numbers,
// it comes before all others.
const single = mark + "0"

// newID returns a UUID, by which a node is found again if the answer to its creation
// is lost. It is no secret, unlike the owner.
func newID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails: it ends the program instead
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// prefixOf is how the name of the node with that ID begins, up to its number.
func prefixOf(id string) string { return "_c_" + id + "-" + mark }

// anchorOf is the name of the node that a lock of the order Unfair has beside lock-0,
// created and removed together with it. No other anchor ever has that name, and ZooKeeper
// removes no container with a node in it: as long as the anchor exists, the version of the
// container has not begun again. An anchor is no contender. It lacks the mark, and Curator,
// which sorts such a name as text, and the Lock of go-zookeeper, which wants a number at
// its end, place it behind all others.
func anchorOf(id string) string { return "_c_" + id + "__" + strconv.Itoa(lastNumber) }

// protected reports whether the name of a node has an ID, so that no other node ever has
// that name, also after the numbers of the container have begun again.
func protected(node string) bool { return strings.HasPrefix(node, "_c_") }

// rank is what a node is ordered by, as text, as Curator does it.
func rank(child string) (string, bool) {
	at := strings.LastIndex(child, mark)
	if at < 0 {
		return "", false
	}
	return child[at+len(mark):], true
}

// queueOf are the nodes that are there for the lock, in order. Others are not ours.
func queueOf(children []string) []string {
	queue := slices.DeleteFunc(slices.Clone(children), func(child string) bool { return !strings.Contains(child, mark) })
	slices.SortFunc(queue, func(a, b string) int {
		rankA, _ := rank(a)
		rankB, _ := rank(b)
		return cmp.Or(strings.Compare(rankA, rankB), strings.Compare(a, b))
	})
	return queue
}

// lastNumber is the largest that ZooKeeper has. It gives it to everybody who comes
// when it has arrived there, or goes on with negative ones, which as text come before
// all others.
const lastNumber = 1<<31 - 1

// renumberAt is when a container is removed at the next opportunity, so that its
// numbers begin again: early enough for a busy lock to find one.
const renumberAt = lastNumber - 100_000_000

// orderly says whether a node's number is one that only this node has, and larger than
// all before.
func orderly(node string) bool {
	n, ok := number(node)
	return ok && n >= 0 && n < lastNumber
}

// number is the one at the end of a node's name.
func number(node string) (int64, bool) {
	text, ok := rank(node)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil
}

// content is the data of a node: who asks, for people, and for how long.
type content struct {
	driver.Holder
	ID  string `json:"id,omitempty"`     // where the name does not tell
	TTL int64  `json:"ttl_ms,omitempty"` // after the last renewal, while the process lives
}

func (c content) encode() []byte {
	b, _ := json.Marshal(c) // strings and numbers: cannot fail
	return b
}

// decode reads the data of any node. Another program's become the holder's note.
func decode(data []byte) (c content) {
	if err := json.Unmarshal(data, &c); err != nil {
		return content{Holder: driver.DecodeHolder(string(data))}
	}
	return c
}

func (c content) ttl() time.Duration { return time.Duration(c.TTL) * time.Millisecond }
