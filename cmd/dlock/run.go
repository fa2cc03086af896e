package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
)

// app is what the commands of one run share.
type app struct {
	stdin, stdout, stderr *os.File // as they are: exec hands them to its command
	messages              io.Writer
	secrets               *redactor
	storeURL              string      // of --store
	storeGiven            func() bool // whether there was a --store
	storeFile             string      // of --store-file
	storeFileGiven        func() bool // whether there was a --store-file
}

// run executes one command line and returns its exit status.
func run(ctx context.Context, args []string, stdin, stdout, stderr *os.File) int {
	a := &app{stdin: stdin, stdout: stdout, stderr: stderr}
	a.secrets = newRedactor(os.Getenv(storeVariable), args)
	a.messages = a.secrets.writer(stderr)

	root := a.rootCommand()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(a.messages)
	failed, err := root.ExecuteContextC(ctx)
	return a.finish(failed, err)
}

// finish says what went wrong, if anything did, and picks the exit status.
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

// say writes one message for people to stderr. What it writes can neither
// contain a password nor steer the terminal.
func (a *app) say(format string, values ...any) {
	// The program's own name is no secret, even if the password is the same word.
	fmt.Fprintf(a.stderr, "dlock: %s\n", a.secrets.clean(harmlessLines(fmt.Sprintf(format, values...))))
}
