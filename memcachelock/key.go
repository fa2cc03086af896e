package memcachelock

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// prefix keeps locks apart from what else is in the cache.
const prefix = "dlock:"

// maxKey is how long memcached's keys may be.
const maxKey = 250

// hashed marks keys that are made of the hash of a name.
const hashed = prefix + "#"

// keyOf returns the key of a lock: its name, or a hash of it where memcached would
// not take the name, or take it for a hash.
func keyOf(name string) string {
	key := prefix + name
	if len(key) <= maxKey && !strings.HasPrefix(key, hashed) && plain(name) {
		return key
	}
	sum := sha256.Sum256([]byte(name))
	return hashed + hex.EncodeToString(sum[:])
}

// plain says whether all of a name is visible ASCII. A key with a blank in it would
// be two, and one with a line's end would be two commands.
func plain(name string) bool {
	for i := range len(name) {
		if c := name[i]; c <= ' ' || c >= 0x7f {
			return false
		}
	}
	return true
}
