package terminal

import (
	"strings"
	"testing"
)

func TestTableFitsTheTerminal(t *testing.T) {
	for width, want := range map[int]string{
		0:  "NAME        N  HOLDER\nnightly/01  7  somebody with a long name on a host\n",
		80: "NAME        N  HOLDER\nnightly/01  7  somebody with a long name on a host\n",
		30: "NAME        N  HOLDER\nnightly/01  7  somebody with \u2026\n",
		22: "NAME       N  HOLDER\nnightly/\u2026  7  somebod\u2026\n",
		15: "NAME        N\nnightly/01  7\n",
		5:  "NAME\nnigh\u2026\n",
		1:  "\u2026\n\u2026\n",
	} {
		table := Table{Width: width, Columns: []Column{{Title: "NAME", Shrink: 1}, {Title: "N", Right: true}, {Title: "HOLDER", Shrink: 2}}}
		table.Add("nightly/01", "7", "somebody with a long name on a host")
		var b strings.Builder
		if err := table.Print(&b, false); err != nil || b.String() != want {
			t.Errorf("width %d:\n%s\nwant\n%s", width, b.String(), want)
		}
	}
}

// Only the order of the values of Shrink matters, not how large they are.
func TestTableCutsTheLargestShrinkFirst(t *testing.T) {
	table := Table{Width: 22, Columns: []Column{{Title: "NAME", Shrink: 10}, {Title: "HOLDER", Shrink: 20}}}
	table.Add("nightly/01", "a holder with a long name")
	var b strings.Builder
	const want = "NAME        HOLDER\nnightly/01  a holder \u2026\n"
	if err := table.Print(&b, false); err != nil || b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

// TestTableAlignsWideCharacters: a wide character takes two columns, a combining one none.
func TestTableAlignsWideCharacters(t *testing.T) {
	for width, want := range map[int]string{
		0:  "NAME        N\n\u6f22\u5b57\u6f22\u5b57\u6f22  7\nabcdefghij  7\ne\u0301           7\n",
		12: "NAME       N\n\u6f22\u5b57\u6f22\u5b57\u2026  7\nabcdefgh\u2026  7\ne\u0301          7\n",
	} {
		table := Table{Width: width, Columns: []Column{{Title: "NAME", Shrink: 1}, {Title: "N", Right: true}}}
		for _, name := range []string{"\u6f22\u5b57\u6f22\u5b57\u6f22", "abcdefghij", "e\u0301"} {
			table.Add(name, "7")
		}
		var b strings.Builder
		if err := table.Print(&b, false); err != nil || b.String() != want {
			t.Errorf("width %d:\n%s\nwant\n%s", width, b.String(), want)
		}
	}
}
