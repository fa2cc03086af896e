//go:build unix

package main

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func TestUsageErrors(t *testing.T) {
	b := newBench(t)
	long := strings.Repeat("n", 256)
	for _, c := range []struct {
		says string
		args []string
	}{
		{"unknown command", []string{"no-such-command"}},
		{"unknown flag", []string{"--no-such-flag"}},
		{"unknown flag", []string{"ls", "--no-such-flag"}},
		{"no such command", []string{"help", "no-such-command"}},

		{"NAME and COMMAND are missing", []string{"exec"}},
		{"COMMAND is missing", []string{"exec", "name"}},
		{"COMMAND is missing", []string{"exec", "name", "--"}},
		{"flags come before NAME", []string{"exec", "name", "-n", "--", "true"}},
		{"exclude each other", []string{"exec", "-n", "-w", "1s", "name", "--", "true"}},
		{"exclude each other", []string{"exec", "-q", "-v", "name", "--", "true"}},
		{"it is empty", []string{"exec", "", "--", "true"}},
		{"limit is 255", []string{"exec", long, "--", "true"}},
		{"control character", []string{"exec", "a\x1b[31mb", "--", "true"}},
		{"control character", []string{"exec", "a\nb", "--", "true"}},
		{"not UTF-8", []string{"exec", "a\xffb", "--", "true"}},
		{"invalid duration", []string{"exec", "--ttl", "soon", "name", "--", "true"}},
		{"write 30 for seconds", []string{"exec", "-w", "5x", "name", "--", "true"}},
		{"too long", []string{"exec", "-w", "1e300", "name", "--", "true"}},
		{"too long", []string{"exec", "-w", "9999999h", "name", "--", "true"}},
		{"write 30 for seconds", []string{"exec", "-w", "NaN", "name", "--", "true"}},
		{"write 30 for seconds", []string{"exec", "-w=-inf", "name", "--", "true"}},
		{"write -a stock", []string{"exec", "-a", "orders", "stock", "--", "true"}},
		{"unknown shell", []string{"completion", "foo"}},
		{"want a whole number", []string{"break", "name", "--token", "x"}},
		{"negative", []string{"exec", "-w", "-1", "name", "--", "true"}},
		{"negative", []string{"exec", "--max-hold", "-1s", "name", "--", "true"}},
		{"--max-hold 0s is not positive", []string{"exec", "--max-hold", "0", "name", "--", "true"}},
		{"longer than --max-hold", []string{"exec", "--min-hold", "2s", "--max-hold", "1s", "name", "--", "true"}},
		{"the limit is 1000", []string{"exec", "--note", strings.Repeat("n", 1001), "name", "--", "true"}},
		{"COMMAND is missing", []string{"exec", "-a", "name", "-a", "other", "--"}},
		{"it is empty", []string{"exec", "-a", "name", "-a", "", "--", "true"}},
		{"one NAME", []string{"hold"}},
		{"one NAME", []string{"hold", "a", "b"}},
		{"it is empty", []string{"hold", ""}},
		{"exclude each other", []string{"hold", "-n", "-w", "1s", "name"}},
		{"needs an argument", []string{"exec", "-w"}},
		{"not positive", []string{"exec", "--ttl", "0s", "name", "--", "true"}},
		{"not positive", []string{"exec", "--ttl", "-1s", "name", "--", "true"}},
		{"less than the minimum", []string{"exec", "--ttl", "1ns", "name", "--", "true"}},
		{"more than the maximum", []string{"exec", "--ttl", "2562047h47m16.854775807s", "name", "--", "true"}},
		{"--store is empty", []string{"ls", "--store", ""}},
		{"unknown shorthand flag: 'v'", []string{"-v", "ls"}},
		{"negative", []string{"exec", "--wait", "-1s", "name", "--", "true"}},
		{"negative", []string{"exec", "--grace", "-1s", "name", "--", "true"}},
		{"negative", []string{"exec", "--min-hold", "-1s", "name", "--", "true"}},
		{"outside 0 to 255", []string{"exec", "-E", "256", "name", "--", "true"}},
		{"outside 0 to 255", []string{"exec", "-E", "-1", "name", "--", "true"}},
		{"invalid", []string{"exec", "-E", "x", "name", "--", "true"}},

		{"at most one PREFIX", []string{"ls", "a", "b"}},
		{"one NAME", []string{"show"}},
		{"one NAME", []string{"show", "a", "b"}},
		{"it is empty", []string{"show", ""}},
		{"--token", []string{"break", "name"}},
		{"one NAME", []string{"break", "--token", "1"}},
		{"want a whole number", []string{"break", "name", "--token", "-1"}},
		{"no arguments", []string{"doctor", "x"}},
		{"no arguments", []string{"version", "x"}},

		{"sqlite:///path/file.db", []string{"ls", "--store", "nosuch://host/db"}},
		{"sqlite:///path/file.db", []string{"ls", "--store", "/just/a/path"}},
		{"no parameters", []string{"ls", "--store", "sqlite:///tmp/x.db?mode=ro"}},
		{"three slashes", []string{"ls", "--store", "sqlite://host/x.db"}},
		{"three slashes", []string{"ls", "--store", "sqlite:x.db"}},
		{"%25", []string{"ls", "--store", "sqlite:///tmp/100%.db"}},
		{"NUL", []string{"ls", "--store", "sqlite:///tmp/%00.db"}},
		{"names a folder", []string{"ls", "--store", "sqlite:///tmp/"}},
	} {
		r := b.must(exitUsage, c.args...)
		contains(t, "stderr", r.stderr, c.says, "--help' for usage.")
		if !strings.HasPrefix(r.stderr, "dlock: ") || strings.HasPrefix(r.stderr, "dlock: dlock: ") {
			t.Errorf("%q: the message should start with one \"dlock: \": %s", c.args, r.stderr)
		}
		if r.stdout != "" {
			t.Errorf("%q: a usage error has nothing to say on stdout: %s", c.args, r.stdout)
		}
		if strings.Contains(r.stderr, "\x1b") || !utf8.ValidString(r.stderr) {
			t.Errorf("%q: the message contains what was not to be shown: %q", c.args, r.stderr)
		}
	}
}

// Every duration on the command line is in seconds if it has no unit.
func TestEveryDurationTakesSeconds(t *testing.T) {
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if err := f.Value.Set("1.5"); f.Value.Type() == "duration" && (err != nil || f.Value.String() != "1.5s") {
				t.Errorf("%s --%s 1.5: %s, %v", cmd.CommandPath(), f.Name, f.Value, err)
			}
		})
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit((&app{}).rootCommand())
}

func TestHelp(t *testing.T) {
	b := newBench(t)
	r := b.must(0, "--help")
	contains(t, "dlock --help", r.stdout, "Exit status:", "64", "69", "75", "76", "77", "78", "126", "127", "sqlite:///path/file.db", "DLOCK_STORE")
	for _, command := range []string{"exec", "hold", "ls", "show", "break", "doctor", "version"} {
		contains(t, "dlock --help", r.stdout, "\n  "+command+" ")
		one := b.must(0, command, "--help")
		contains(t, "dlock "+command+" --help", one.stdout, "Usage:", "Examples:", "--store URL")
		if same := b.must(0, "help", command); same.stdout != one.stdout {
			t.Errorf("dlock help %s differs from dlock %s --help", command, command)
		}
	}
	contains(t, "dlock", b.must(0).stdout, "Exit status:")
}
