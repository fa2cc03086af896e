// Command dlock runs commands under a distributed lock and shows which locks are held.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/dlock-go/dlock/cmd/dlock/internal/demo"
	"github.com/dlock-go/dlock/cmd/dlock/internal/stores"
	"github.com/dlock-go/dlock/cmd/dlock/internal/supervise"
	"github.com/dlock-go/dlock/cmd/dlock/internal/terminal"
	"github.com/spf13/pflag"
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
	stdin, stdout, stderr *os.File       // exec hands them to its command
	flags                 *pflag.FlagSet // of all commands
	storeURL              string         // of --store
	storeFile             string         // of --store-file
	abandoned             bool           // the release of a lock was given up
}

// run executes one command line and returns its exit status.
func run(ctx context.Context, args []string, stdin, stdout, stderr *os.File) int {
	a := &app{stdin: stdin, stdout: stdout, stderr: stderr}
	root := a.rootCommand()
	root.SetArgs(args)
	root.SetIn(stdin)
	out := &errorKeeper{w: stdout}
	root.SetOut(out)
	addCompletion(root)
	root.SetErr(stderr)
	failed, err := root.ExecuteContextC(ctx)
	if out.err != nil {
		err = terminal.OutputError(out.err)
	}
	if errors.Is(err, terminal.ErrOutput) {
		err = classify(err)
	}
	if quotesArgs(err) {
		err = &statusError{exitStatus(err), errors.New(stores.NewArgsRedactor(args).Clean(err.Error()))}
	}
	status := exitStatus(err)
	if err == nil || isSilent(err) {
		return status
	}
	a.say("%v", err)
	if status == exitUsage {
		fmt.Fprintf(stderr, "Run '%s --help' for usage.\n", failed.CommandPath())
	}
	return status
}

// errorKeeper keeps the first error of writing, which cobra ignores in its help.
type errorKeeper struct {
	w   io.Writer
	err error
}

func (k *errorKeeper) Write(p []byte) (int, error) {
	n, err := k.w.Write(p)
	k.err = cmp.Or(k.err, err)
	return n, err
}

// say writes one message to stderr, without control characters.
func (a *app) say(format string, values ...any) {
	fmt.Fprintf(a.stderr, "dlock: %s\n", terminal.Escape(fmt.Sprintf(format, values...)))
}
