package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// A make -j hands its jobserver to its children as descriptors 3 and 4, and a
// script may use any others.
func TestCommandInheritsTheDescriptorsOfTheCaller(t *testing.T) {
	b := newBench(t)
	given := []int{3, 4, 5, 9, 30}
	script := `exec dlock exec job -- sh -c 'for n; do cat /dev/fd/$n || echo "$n is missing"; done' sh "$@"`
	var numbers []string
	for _, n := range given {
		if err := os.WriteFile(b.path(fmt.Sprint(n)), fmt.Appendf(nil, "file %d\n", n), 0o600); err != nil {
			t.Fatal(err)
		}
		script = fmt.Sprintf("exec %d<%s\n", n, b.path(fmt.Sprint(n))) + script
		numbers = append(numbers, fmt.Sprint(n))
	}
	// bash, because dash takes one digit only.
	cmd := exec.Command("bash", append([]string{"-c", script, "bash"}, numbers...)...)
	cmd.Dir, cmd.Env = b.folder, b.env
	r := runToEnd(t, cmd)
	want := "file 3\nfile 4\nfile 5\nfile 9\nfile 30\n"
	if r.stdout != want || r.status != 0 {
		t.Errorf("the command read %q from the descriptors %v, want %q; status %d, stderr: %s",
			r.stdout, given, want, r.status, r.stderr)
	}
}

// The command has the descriptors that it would have without dlock, and none of
// dlock's own: no pipe to the guard, no database file, no terminal.
func TestCommandInheritsNoDescriptorOfDlock(t *testing.T) {
	b := newBench(t)
	// The shell lists its own descriptors.
	const list = `for n in /proc/$$/fd/*; do case $(readlink $n) in ""|*/fd) ;; *) echo ${n##*/};; esac; done`
	under := func(prefix, redirect string) string {
		cmd := exec.Command("sh", "-c", fmt.Sprintf("exec %s sh -c '%s' %s", prefix, list, redirect))
		cmd.Dir, cmd.Env = b.folder, b.env
		r := runToEnd(t, cmd)
		if r.status != 0 {
			t.Errorf("%s: status %d, stderr: %s", prefix, r.status, r.stderr)
		}
		return strings.Join(strings.Fields(r.stdout), " ")
	}
	for _, redirect := range []string{"", "7</dev/null", "3</dev/null 8</dev/null", "3</dev/null 4</dev/null 5</dev/null"} {
		if got, want := under("dlock exec job --", redirect), under("", redirect); got != want {
			t.Errorf("with %q the command has the descriptors %q, without dlock it has %q", redirect, got, want)
		}
	}

	// At a terminal too, where dlock has it open itself.
	const say = "echo descriptors $(" + list + ")."
	plain := b.onScreen("sh", "-c", say)
	plain.expect(0)
	s := b.onScreen(dlockBinary, "exec", "-q", "job", "--", "sh", "-c", say)
	s.expect(0)
	eventually(t, "both screens show the same", func() bool {
		return strings.Contains(s.seen.String(), ".") && s.seen.String() == plain.seen.String()
	})
}
