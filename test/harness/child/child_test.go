package child_test

import (
	"errors"
	"io"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/dlock-go/dlock/test/harness/await"
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
	p := child.RunThreads(t, exec.Command("sh", "-c", parrot))
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

func TestLastLineIsReceived(t *testing.T) {
	t.Parallel()
	p := child.Run(t, exec.Command("printf", "first\nlast"))
	<-p.Ended()
	for _, want := range []string{"first", "last"} {
		if got, err := p.Receive(await.Limit); got != want || err != nil {
			t.Errorf("received %q, %v; want %q", got, err, want)
		}
	}
	if got, err := p.Receive(await.Limit); !errors.Is(err, io.EOF) {
		t.Errorf("received %q, %v after the last line; want EOF", got, err)
	}
}

func TestStop(t *testing.T) {
	t.Parallel()
	p := child.Run(t, exec.Command("cat"))
	if err := p.Send("line"); err != nil {
		t.Error(err)
	}
	if err := p.Stop(await.Limit); err != nil {
		t.Errorf("a process that ends with its input: %v", err)
	}
	if err := child.Run(t, exec.Command("sh", "-c", "exit 3")).Stop(await.Limit); err == nil {
		t.Error("the status of a process is lost")
	}
	if err := child.Run(t, exec.Command("sleep", "1000")).Stop(time.Millisecond); err == nil {
		t.Error("a process that does not end with its input was not killed")
	}
}

// A process that writes more than the test reads, or that is paused, is killed all the same. The test kills
// each again in the end.
func TestKill(t *testing.T) {
	t.Parallel()
	child.Run(t, exec.Command("yes")).Kill()
	paused := child.Run(t, exec.Command("cat"))
	if err := paused.Pause(); err != nil {
		t.Fatal(err)
	}
	paused.Kill()
}
