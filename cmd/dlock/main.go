// Command dlock runs commands under a distributed lock and shows which locks are held.
package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/dlock-go/dlock/cmd/dlock/internal/demo"
	"github.com/dlock-go/dlock/cmd/dlock/internal/stores"
	"github.com/dlock-go/dlock/cmd/dlock/internal/supervise"
	"github.com/dlock-go/dlock/cmd/dlock/internal/terminal"
	"github.com/spf13/cobra"
)

func main() {
	if status, ok := supervise.RunHelper(os.Args); ok {
		os.Exit(status)
	}
	if status, ok := demo.RunProcess(os.Args, os.Stdin, os.Stdout, describeError); ok {
		os.Exit(status)
	}
	os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// app is what the commands of one run share.
type app struct {
	stdin, stdout, stderr *os.File // exec hands them to its command
	messages              io.Writer
	secrets               *stores.Redactor
	storeURL              string      // of --store
	storeGiven            func() bool // reports whether --store was given
	storeFile             string      // of --store-file
	storeFileGiven        func() bool // reports whether --store-file was given
}

// run executes one command line and returns its exit status.
func run(ctx context.Context, args []string, stdin, stdout, stderr *os.File) int {
	a := &app{stdin: stdin, stdout: stdout, stderr: stderr}
	a.secrets = stores.NewRedactor(os.Getenv(storeVariable), args)
	a.messages = a.secrets.Writer(stderr)

	root := a.rootCommand()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(a.messages)
	failed, err := root.ExecuteContextC(ctx)
	return a.finish(failed, err)
}

// finish prints the error, if there is one, and returns the exit status.
func (a *app) finish(failed *cobra.Command, err error) int {
	status := exitStatus(err)
	if err == nil || isSilent(err) {
		return status
	}
	a.say("%v", err)
	if status == exitUsage {
		fmt.Fprintf(a.messages, "Run '%s --help' for usage.\n", failed.CommandPath())
	}
	return status
}

// say writes one message to stderr, without secrets and control characters.
func (a *app) say(format string, values ...any) {
	// The prefix is not redacted, even if the password is the word "dlock".
	fmt.Fprintf(a.stderr, "dlock: %s\n", a.secrets.Clean(terminal.Escape(fmt.Sprintf(format, values...))))
}
