package sqllock

import "fmt"

// Scheme says how a lock is kept.
type Scheme int

// The schemes. All programs that share a lock have to use the same one.
const (
	// Row keeps a lock in a row, taken by one statement. It expires.
	Row Scheme = iota
	// Version reads the row first, and then updates it if it has not changed since. It
	// expires.
	Version
)

var schemeNames = [...]string{Row: "row", Version: "version"}

func (s Scheme) String() string {
	if s < 0 || int(s) >= len(schemeNames) {
		return fmt.Sprintf("scheme %d", int(s))
	}
	return schemeNames[s]
}

// ParseScheme returns the scheme of that name.
func ParseScheme(name string) (Scheme, error) {
	for s, n := range schemeNames {
		if n == name {
			return Scheme(s), nil
		}
	}
	return 0, fmt.Errorf("unknown scheme %q (want row or version)", name)
}
