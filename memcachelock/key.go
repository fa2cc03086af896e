package memcachelock

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
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
