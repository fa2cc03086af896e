package driver

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"sync"
)

// Owner identifies one grant: 128 secret random bits. A program that knows
// the owner can release the lock, so an Owner prints as "[owner]" in every format.
// A store keeps the text that Hex returns.
type Owner [16]byte

// owners buffers random bytes, because asking the kernel for 16 at a time costs as
// much as the rest of an acquisition in memory.
var owners = sync.Pool{New: func() any { return &ownerStock{} }}

type ownerStock struct {
	bytes [256 * len(Owner{})]byte
	left  int // owners that NewOwner has not returned yet
}

// NewOwner returns an owner that no other call returns, in any process.
func NewOwner() Owner {
	stock := owners.Get().(*ownerStock)
	if stock.left == 0 {
		rand.Read(stock.bytes[:]) // never returns an error
		stock.left = len(stock.bytes) / len(Owner{})
	}
	stock.left--
	at := stock.left * len(Owner{})
	owner := Owner(stock.bytes[at : at+len(Owner{})])
	owners.Put(stock)
	return owner
}

// Hex returns the owner as 32 hexadecimal digits, which only the store may see.
func (o Owner) Hex() string { return hex.EncodeToString(o[:]) }

const hiddenOwner = "[owner]"

// Format hides the owner from every verb of package fmt.
func (o Owner) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, hiddenOwner) }

// MarshalText hides the owner from JSON and from structured logs.
func (o Owner) MarshalText() ([]byte, error) { return []byte(hiddenOwner), nil }
