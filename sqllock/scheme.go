package sqllock

import "github.com/dlock-go/dlock/internal/sqldb"

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

var schemes = sqldb.Schemes{Row: "row", Version: "version"}

func (s Scheme) String() string { return schemes.Name(int(s)) }

// ParseScheme returns the scheme of that name.
func ParseScheme(name string) (Scheme, error) {
	s, err := schemes.Parse(name)
	return Scheme(s), err
}
