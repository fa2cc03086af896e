package child_test

import (
	"os/exec"
	"slices"
	"testing"

	"github.com/dlock-go/dlock/test/harness/child"
)

// parrot repeats each line, twice if its order is "twice".
const parrot = `
echo main ready
while read -r thread order rest; do
	echo "$thread" "$order" "$rest"
	if [ "$order" = twice ]; then echo "$thread" "$order" "$rest"; fi
done`

func TestThreadsReceiveTheirOwnAnswers(t *testing.T) {
	t.Parallel()
	p := child.Start(t, exec.Command("sh", "-c", parrot))
	a, b := p.Thread(t), p.Thread(t)
	a.Send("twice", 1, "x")
	b.Send("once", 2)
	if got := b.Expect("once"); !slices.Equal(got, []string{"2"}) {
		t.Errorf("the first answer is %q, want 2", got)
	}
	for range 2 {
		if got := a.Receive(); !slices.Equal(got, []string{"twice", "1", "x"}) {
			t.Errorf("the answer of the other thread is %q, want twice 1 x", got)
		}
	}
}

func TestKillTwice(t *testing.T) {
	t.Parallel()
	p := child.Start(t, exec.Command("sh", "-c", parrot))
	p.Kill(t)
	p.Kill(t) // has no effect
}
