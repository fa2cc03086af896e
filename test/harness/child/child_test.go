package child_test

import (
	"os/exec"
	"slices"
	"testing"

	"github.com/dlock-go/dlock/test/harness/child"
)

// parrot says what it is told, each thing twice if its first word is "twice".
const parrot = `
echo main ready
while read -r who what rest; do
	echo "$who" "$what" "$rest"
	if [ "$what" = twice ]; then echo "$who" "$what" "$rest"; fi
done`

func TestThreadsHearTheirOwnAnswers(t *testing.T) {
	t.Parallel()
	p := child.Start(t, exec.Command("sh", "-c", parrot))
	a, b := p.Thread(t), p.Thread(t)
	a.Tell("twice", 1, "x")
	b.Tell("once", 2)
	if got := b.Hear("once"); !slices.Equal(got, []string{"2"}) {
		t.Errorf("one thread was told %q, want 2", got)
	}
	for range 2 {
		if got := a.HearAny(); !slices.Equal(got, []string{"twice", "1", "x"}) {
			t.Errorf("the other was told %q, want twice 1 x", got)
		}
	}
}

func TestKilledProcess(t *testing.T) {
	t.Parallel()
	p := child.Start(t, exec.Command("sh", "-c", parrot))
	p.Kill(t)
	p.Kill(t) // is no mistake
}
