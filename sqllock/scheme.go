package sqllock

import "fmt"

// Scheme says how a lock is kept.
type Scheme int

// The schemes. All programs that share a lock have to use the same one.
const (
	// Row keeps a lock in a row, taken by one statement. It expires.
	Row Scheme = iota
	// Version reads the row first, and then updates it if nobody has changed it
	// meanwhile. It expires.
	Version
	// ForUpdate holds the row by a transaction that stays open. The lock lives
	// exactly as long as its connection.
	ForUpdate
	// Session holds a lock of the server's own kind: GET_LOCK, or an advisory
	// lock. It lives exactly as long as its connection.
	Session
)

var schemeNames = [...]string{Row: "row", Version: "version", ForUpdate: "forupdate", Session: "session"}

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
	return 0, fmt.Errorf("%q is no scheme: there are row, version, forupdate and session", name)
}

// bound says that locks live as long as a connection.
func (s Scheme) bound() bool { return s == ForUpdate || s == Session }
