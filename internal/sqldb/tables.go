package sqldb

import (
	"cmp"
	"fmt"
	"strings"
)

// DefaultTablePrefix is the default of a store's option TablePrefix.
const DefaultTablePrefix = "dlock_"

// Tables are the names of the tables that stores with the same prefix use.
type Tables struct {
	Locks, Queue, Meta string // of locks that are rows
	Wake               string // the channel on which PostgreSQL notifies waiters
	Bound              string // the rows that transactions hold
	Fence              string // the source of the tokens of session locks
}

// maxPrefix leaves room for the rest of the name in every database.
const maxPrefix = 40

// NewTables returns the names that begin with prefix. An empty prefix is the default.
func NewTables(prefix string) (Tables, error) {
	prefix = cmp.Or(prefix, DefaultTablePrefix)
	if len(prefix) > maxPrefix {
		return Tables{}, fmt.Errorf("table prefix %q has more than %d characters", prefix, maxPrefix)
	}
	for i, c := range []byte(prefix) {
		letter := c == '_' || 'a' <= c|0x20 && c|0x20 <= 'z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return Tables{}, fmt.Errorf("table prefix %q: letters, digits and _ are allowed, and no digit at the start", prefix)
		}
	}
	return Tables{
		Locks: prefix + "locks", Queue: prefix + "queue", Meta: prefix + "meta",
		Wake:  strings.ToLower(prefix) + "wake", // the names of tables are the same in upper and lower case
		Bound: prefix + "bound", Fence: prefix + "fence",
	}, nil
}

// Expand puts the names of the tables and the expression for the clock into a text.
func (t *Tables) Expand(now, text string) string {
	return strings.NewReplacer("{locks}", t.Locks, "{queue}", t.Queue, "{meta}", t.Meta,
		"{bound}", t.Bound, "{fence}", t.Fence, "{wake}", t.Wake, "{now}", now).Replace(text)
}
