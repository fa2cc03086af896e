package driver

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
)

// Owner identifies one grant: 128 secret random bits. A program that knows
// the owner can release the lock, so an Owner prints as "[owner]" in every format.
// A store keeps the text that Hex returns.
type Owner [16]byte

// NewOwner returns an owner that no other call returns, in any process. It keeps no stock of random
// bytes: two machines that were started from one snapshot of memory would share it, and both
// would hold the same lock. The kernel notices such a start.
func NewOwner() Owner {
	var owner Owner
	rand.Read(owner[:]) // never returns an error
	return owner
}

// Hex returns the owner as 32 hexadecimal digits, which only the store may see.
func (o Owner) Hex() string { return hex.EncodeToString(o[:]) }

const hiddenOwner = "[owner]"

// Format hides the owner from every verb of package fmt.
func (o Owner) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, hiddenOwner) }

// MarshalText hides the owner from JSON and from structured logs.
func (o Owner) MarshalText() ([]byte, error) { return []byte(hiddenOwner), nil }
