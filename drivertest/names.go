package drivertest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
	"unicode"

	"github.com/dlock-go/dlock/driver"
)

const demandNames = `CheckName: "Names are compared byte by byte"; "Two names never collide, and a name is never the parent of another"`

var nameClauses = []clause{
	{
		id:     "names-distinct",
		demand: demandNames,
		check:  func(p *probe) { p.holdAll(p.legalNames(), exactNames, "") },
	},
	{
		id:     "names-fuzzed",
		demand: demandNames + ": 1 to 255 bytes of UTF-8 without control characters",
		check: func(p *probe) {
			seed := rand.Uint64()
			names := fuzzNames(p.name(""), rand.New(rand.NewPCG(seed, 0)), 40)
			p.holdAll(names, nil, fmt.Sprintf(" (seed %d)", seed))
		},
	},
	{
		id:     "names-illegal",
		demand: `CheckName: "returns an error that wraps [ErrBadName]"; "The rule is the same for every store, and dlock applies it before it calls a store."`,
		check: func(p *probe) {
			client := p.client(time.Minute)
			for _, name := range illegalNames {
				if err := driver.CheckName(name); !errors.Is(err, driver.ErrBadName) {
					p.failf("CheckName(%q): want ErrBadName, got: %v", name, err)
				}
				if _, err := client.TryLock(p.ctx, name); !errors.Is(err, driver.ErrBadName) {
					p.failf("TryLock(%q): want ErrBadName, got: %v", name, err)
				}
			}
		},
	},
}

// legalNames have something that some store trips over, behind the prefix of the run.
func (p *probe) legalNames() (names []string) {
	root := p.name("")
	for _, label := range []string{
		"", "a", "A", "a/b", "a/b/c", "a//b", "a/", "/a", "a:b", "a.b", "a-b", "a_b", "a,b", "a;b", "a|b", "a=b", "a\\b", "a\\\\b",
		".", "..", "./a", "../a", "a/../a", "~", "{a}", "{", "}", "{}", "[a]", "a*", "a?", "a%", "a_", "%", "%s", "%61", "%00", "a%2Fb",
		" ", "a ", " a", "a  b", "a b", `"a"`, "'a'", "'; DROP TABLE locks; --", "`a`", "$a", "#a", "a&b", "<a>", "a\u00a0",
		"é", "e\u0301", "É", "ß", "ss", "ſ", "K", "\u212a", "I", "ı", "i", "İ", "日本語", "عربي", "🔒", "👩‍👩‍👧", "\U0010ffff", "\ufeffa", "a\u200b", "\ufffd",
		"0", "00", "-1", "1e1", "1", "true", "null", "NULL", "lock", "locks", "queue", "token", "fence",
		"a:token", "a:queue", "a:fence", "a/token", "a/queue", "token:a", "queue:a", "lock:a", "dlock:a", "dlock:{a}:token", "redisson_lock__channel:{a}",
	} {
		names = append(names, root+label)
	}
	// As long as can be, different only at the ends; and in bytes, not letters.
	fill := strings.Repeat("x", driver.MaxNameBytes-len(root)-1)
	names = append(names, root+fill+"1", root+fill+"2", root+"1"+fill, root+fill[:180], root+fill[:64], root+fill[:63])
	wide := strings.Repeat("é", (driver.MaxNameBytes-len(root))/2)
	return append(names, root+wide, root+wide[2:])
}

// exactNames are special only without a prefix. Other runs may use them at the same time, so
// the kit waits for them; in this order, so that two runs cannot block each other.
var exactNames = []string{" ", "%", "*", ".", "..", "/", "0", "_", "a", "zookeeper"}

// holdAll takes all names, each for another owner, and demands that each is held and listed as
// itself. It waits for the exact names, which have no prefix. origin is for complaints.
func (p *probe) holdAll(names, exact []string, origin string) {
	a, b := p.open(), p.open()
	taken := make(map[uint64]string)
	grants := make([]driver.Grant, 0, len(names)+len(exact))
	for _, name := range names {
		grant, held := a.try(p.request(name, p.long))
		if held != nil {
			p.failf("%q was never taken, but is held as if it were %q%s", name, taken[held.Token], origin)
		}
		taken[grant.Token] = name
		grants = append(grants, grant)
	}
	for _, name := range exact {
		grants = append(grants, a.within(8*p.slack, p.poll, p.request(name, p.long), "only the kit should use it"))
	}
	p.together(len(grants), func(i int) {
		name := grants[i].Name
		if held := b.refused(name, "it is held"+origin); held.Name != name {
			p.failf("%q is held, the HeldError is about %q%s", name, held.Name, origin)
		}
	})
	if offers[driver.Lister](p.setup) {
		listed := b.list(p.name(""))
		for _, name := range names {
			if _, ok := listed[name]; !ok {
				p.failf("%q is held and not listed%s", name, origin)
			}
		}
		if len(listed) != len(names) {
			p.failf("%d names are held, %d are listed%s", len(names), len(listed), origin)
		}
	}
	for i, grant := range grants {
		a.released(grant)
		b.free(grant.Name, "it was released"+origin)
		if next := i + 1; next < len(grants) {
			a.renewed(grants[next], fmt.Sprintf("only %q was released%s", grant.Name, origin))
		}
	}
}

// fuzzNames returns n different legal names that begin with root.
func fuzzNames(root string, random *rand.Rand, n int) (names []string) {
	alphabets := []string{"ab", "aA", "./", " /", "%_\\*?[]", "{}:", "'\"`;-", "éèe\u0301\u0300", "漢字かな", "🔒🗝️"}
	used := make(map[string]bool)
	for len(names) < n {
		var label strings.Builder
		alphabet := []rune(alphabets[random.IntN(len(alphabets))])
		for want := 1 + random.IntN(driver.MaxNameBytes-len(root)); label.Len() < want; {
			r := alphabet[random.IntN(len(alphabet))]
			if random.IntN(8) == 0 {
				r = random.Int32N(unicode.MaxRune)
			}
			label.WriteRune(r)
			if random.IntN(20) == 0 {
				break // short ones collide best
			}
		}
		name := root + label.String()
		if driver.CheckName(name) == nil && !used[name] {
			used[name] = true
			names = append(names, name)
		}
	}
	return names
}

// illegalNames are refused before a store sees them.
var illegalNames = []string{
	"", "\x00", "a\x00b", "a\nb", "a\r\nb", "a\tb", "\x1b[31m", "\x7f", "a\u0085b", "\xff", "a\xc3", "\xed\xa0\x80", "\xc0\xaf",
	strings.Repeat("x", driver.MaxNameBytes+1), strings.Repeat("é", driver.MaxNameBytes/2+1),
}
