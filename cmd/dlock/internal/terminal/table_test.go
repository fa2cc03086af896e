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
		5:  "NAME      N  HOLDER\nnightly\u2026  7  somebod\u2026\n",
	} {
		table := Table{Width: width, Columns: []Column{{Title: "NAME", Shrink: 1}, {Title: "N", Right: true}, {Title: "HOLDER", Shrink: 2}}}
		table.Add("nightly/01", "7", "somebody with a long name on a host")
		var b strings.Builder
		if err := table.Print(&b, false); err != nil || b.String() != want {
			t.Errorf("width %d:\n%s\nwant\n%s", width, b.String(), want)
		}
	}
}
