package sqlsession

import "fmt"

// Scheme says how a connection holds a lock.
type Scheme int

// The schemes. All programs that share a lock have to use the same one.
const (
	// Session holds a lock of the server's own kind: GET_LOCK, or an advisory
	// lock. All locks of a store are on one connection.
	Session Scheme = iota
	// ForUpdate holds a row by a transaction that stays open. Every lock needs a
	// connection of its own.
	ForUpdate
)

var schemeNames = [...]string{Session: "session", ForUpdate: "forupdate"}

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
	return 0, fmt.Errorf("unknown scheme %q (want session or forupdate)", name)
}
