package memcachelock

import (
	"crypto/sha256"
	"encoding/hex"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/tokenstep"
)

const (
	prefix = "dlock:"     // keeps locks apart from other items
	hashed = prefix + "#" // begins the keys that are made of a name's hash
	maxKey = 250          // bytes, the limit of memcached
)

// appendKey appends the key of a lock: its name, or a hash of a name that memcached does not
// accept or that would be taken for a hash.
func appendKey(b []byte, name string) []byte {
	if len(prefix)+len(name) <= maxKey && !strings.HasPrefix(name, "#") && isPlain(name) {
		return append(append(b, prefix...), name...)
	}
	sum := sha256.Sum256([]byte(name))
	return hex.AppendEncode(append(b, hashed...), sum[:])
}

// isPlain reports whether a name consists of visible ASCII. In memcached's protocol a blank ends
// a key, and a line break ends a command.
func isPlain(name string) bool {
	return !strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r >= 0x7f })
}

// newGrantID returns what identifies the grant of an attempt: OWNER.NONCE. The item's number does not,
// since memcached before 1.6.24 gives the items of a page that it moves new ones.
func newGrantID(owner driver.Owner) string {
	return owner.Hex() + "." + strconv.FormatUint(rand.Uint64(), 36)
}

// holderValue returns the value of a lock's item: ID:TOKEN:HOLDER. The token is zero until
// the first renewal, because it is made of the number that memcached gives to the stored item.
func holderValue(id string, token uint64, holder driver.Holder) string {
	b := append(make([]byte, 0, 256), id...)
	b = strconv.AppendUint(append(b, ':'), token, 10)
	return string(append(append(b, ':'), holder.Encode()...))
}

// item is what memcached has under a key.
type item struct {
	value string
	cas   uint64 // memcached's number of the item: it rises with every item that is stored
	left  int64  // seconds until the item expires; negative if it never does
}

// ownedBy reports whether the item is a lock of that owner.
func (it *item) ownedBy(owner driver.Owner) bool {
	text, _, found := strings.Cut(it.value, ".")
	return found && text == owner.Hex()
}

// grantID returns what newGrantID did, empty for no item.
func (it *item) grantID() string {
	id, _, _ := strings.Cut(it.value, ":")
	return id
}

// isOf reports whether the item is the lock of a grant. started is when the server did.
func (it *item) isOf(grant *driver.Grant, started uint64) bool {
	return it.ownedBy(grant.Owner) && (grant.Token == 0 || handleOf(grant).id == it.grantID() || it.token(started) == grant.Token)
}

// token returns the token of the lock, zero if another program wrote the item. If the item was moved
// before it was stored for the second time, the grant has a smaller token.
func (it *item) token(started uint64) uint64 {
	token, _, ok := it.written()
	if ok && token == 0 {
		return tokenstep.First(started + it.cas)
	}
	return token
}

func (it *item) holder() driver.Holder {
	_, text, _ := it.written()
	return driver.DecodeHolder(text)
}

// written returns the token and the holder in the value. ok is false if another program wrote it.
func (it *item) written() (token uint64, holder string, ok bool) {
	_, rest, _ := strings.Cut(it.value, ":")
	digits, holder, ok := strings.Cut(rest, ":")
	token, err := strconv.ParseUint(digits, 10, 64)
	if !ok || err != nil {
		return 0, "", false
	}
	return token, holder, true
}
