package sqldb

import (
	"fmt"
	"slices"
	"strings"
)

// Schemes are the names of a store's schemes.
type Schemes []string

// Name returns the name of a scheme.
func (s Schemes) Name(scheme int) string {
	if scheme < 0 || scheme >= len(s) {
		return fmt.Sprintf("scheme %d", scheme)
	}
	return s[scheme]
}

// Parse returns the scheme of that name.
func (s Schemes) Parse(name string) (scheme int, err error) {
	if scheme = slices.Index(s, name); scheme < 0 {
		return 0, fmt.Errorf("unknown scheme %q (want %s)", name, strings.Join(s, " or "))
	}
	return scheme, nil
}
