package driver

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"sync"
)

// Owner identifies one acquisition: 128 random bits that nobody else knows.
// Whoever knows it can release the lock, so it prints as "[owner]" in every
// format and never as itself; a store gets the text to keep from Hex.
type Owner [16]byte

// owners keeps random bytes in stock, because asking the kernel for 16 at a
// time costs as much as the rest of an acquisition in memory.
var owners = sync.Pool{New: func() any { return &ownerStock{} }}

type ownerStock struct {
	bytes [256 * len(Owner{})]byte
	left  int // owners that were not handed out yet
}

// NewOwner returns an owner that no other call, here or elsewhere, returns.
func NewOwner() Owner {
	stock := owners.Get().(*ownerStock)
	if stock.left == 0 {
		rand.Read(stock.bytes[:]) // never fails: it ends the program instead
		stock.left = len(stock.bytes) / len(Owner{})
	}
	stock.left--
	at := stock.left * len(Owner{})
	owner := Owner(stock.bytes[at : at+len(Owner{})])
	owners.Put(stock)
	return owner
}

// Hex returns the owner as 32 hexadecimal digits, for the store and no one else.
func (o Owner) Hex() string { return hex.EncodeToString(o[:]) }

const hiddenOwner = "[owner]"

// Format hides the owner from every verb of package fmt.
func (o Owner) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, hiddenOwner) }

// MarshalText hides the owner from JSON and from structured logs.
func (o Owner) MarshalText() ([]byte, error) { return []byte(hiddenOwner), nil }
