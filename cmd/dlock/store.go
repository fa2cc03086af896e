package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/cmd/dlock/internal/stores"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/detach"
)

// The variables that name the store if the command line does not.
const (
	storeVariable     = "DLOCK_STORE"
	storeFileVariable = "DLOCK_STORE_FILE"
)

// withheldScheme stands for a store of an outer dlock whose URL has a password.
const withheldScheme = "withheld"

// storeChoice is the store that the command line or the environment names.
type storeChoice struct {
	url  string // empty: the default
	flag bool   // it was given on the command line
	file string // the absolute path of the file that contains the URL; empty: none
}

// chooseStore returns the store of the command line or else of the environment. It rejects
// an empty URL, because the default would exclude no process of another machine.
func (a *app) chooseStore() (storeChoice, error) {
	urlGiven, fileGiven := a.flags.Changed("store"), a.flags.Changed("store-file")
	variable, inEnvironment := os.LookupEnv(storeVariable)
	file, fileInEnvironment := os.LookupEnv(storeFileVariable)
	const warning = "a lock in a file of this machine excludes no process of another machine"
	switch {
	case urlGiven && fileGiven:
		return storeChoice{}, usagef("--store and --store-file exclude each other")
	case urlGiven && a.storeURL == "":
		return storeChoice{}, usagef("--store is empty: " + warning)
	case urlGiven:
		return storeChoice{url: a.storeURL, flag: true}, nil
	case fileGiven:
		return readStoreFile("--store-file", a.storeFile, true)
	case inEnvironment && fileInEnvironment:
		return storeChoice{}, usagef("$%s and $%s are both set: unset one of them", storeVariable, storeFileVariable)
	case fileInEnvironment:
		return readStoreFile("$"+storeFileVariable, file, false)
	case inEnvironment && variable == "":
		return storeChoice{}, usagef("$%s is empty: %s; unset it to use the file in your state folder", storeVariable, warning)
	}
	return storeChoice{url: variable}, nil
}

func readStoreFile(origin, path string, flag bool) (storeChoice, error) {
	if path == "" {
		return storeChoice{}, usagef("%s is empty", origin)
	}
	absolute, err := filepath.Abs(path)
	var text []byte
	if err == nil {
		text, err = os.ReadFile(absolute)
	}
	clean := stores.NewRedactor(path).Clean // it may be a URL by mistake
	switch {
	case err != nil && strings.Contains(path, "://"):
		return storeChoice{}, usagef("%s is a URL: it has to be the path of a file that contains the URL", origin)
	case err != nil:
		return storeChoice{}, usagef("%s: %s", origin, clean(err.Error()))
	}
	url := strings.TrimSpace(string(text))
	if url == "" || strings.ContainsAny(url, "\r\n") {
		return storeChoice{}, usagef("%s: %s does not contain one store URL on one line", origin, clean(absolute))
	}
	return storeChoice{url: url, flag: flag, file: absolute}, nil
}

// handOn returns an environment in which a nested dlock uses the same store, without a password of
// the command line: environments are inherited and logged. shown is the URL without secrets.
func (c storeChoice) handOn(environment []string, shown string) []string {
	child := without(environment, storeVariable, storeFileVariable)
	switch {
	case strings.HasPrefix(shown, "sqlite:") && !stores.HasSecret(c.url):
		return append(child, storeVariable+"="+shown) // valid in every current folder, and with every $HOME
	case c.file != "":
		return append(child, storeFileVariable+"="+c.file)
	case !c.flag:
		return environment // it contains the store
	case stores.HasSecret(c.url):
		return append(child, storeVariable+"="+withheldScheme+":"+shown)
	}
	return append(child, storeVariable+"="+c.url)
}

func without(environment []string, variables ...string) []string {
	return slices.DeleteFunc(slices.Clone(environment), func(entry string) bool {
		variable, _, _ := strings.Cut(entry, "=")
		return slices.Contains(variables, variable)
	})
}

// withClient opens the store, calls use with a client of it, and closes both. A program is for
// the holder of locks, as others see it; empty is dlock.
func (a *app) withClient(ctx context.Context, program string, use func(*dlock.Client, *stores.Store) error) (err error) {
	if a.choice, err = a.chooseStore(); err != nil {
		return err
	}
	if shown, withheld := strings.CutPrefix(a.choice.url, withheldScheme+":"); withheld {
		return usagef("the dlock around this command was given %s with a password on its command line, which is not handed on: "+
			"use --store-file there, or --store, --store-file or $%s here", shown, storeVariable)
	}
	store, err := stores.Open(ctx, a.choice.url)
	if err != nil {
		return classify(err)
	}
	client := dlock.New(store.Driver, &dlock.Options{Holder: driver.Holder{Program: program}})
	err = use(client, store)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.cleanupLimit(err))
	defer cancel()
	_, _ = detach.Call(ctx, detach.Go, func() error { return errors.Join(client.Close(), store.Close()) })
	return withStatus(store, err)
}

// How long dlock cleans up before it exits. What is left in the store expires.
const (
	unansweredLimit = 200 * time.Millisecond // if the store does not answer
	answeredLimit   = time.Second            // if the store has answered, and may not answer now
	undoLimit       = 2 * time.Second        // if an attempt may have to be undone
	cleanLimit      = time.Minute            // if nothing failed
)

func (a *app) cleanupLimit(err error) time.Duration {
	interrupted, isInterrupted := errors.AsType[interruptedError](err)
	switch {
	case a.abandoned:
		return 0
	case a.conflict:
		return undoLimit
	case isInterrupted && interrupted.answered:
		return answeredLimit
	case isInterrupted, exitStatus(err) == exitLost: // a script has to learn of the loss
		return unansweredLimit
	case errors.Is(err, dlock.ErrUnreachable) && !stores.IsSlow():
		return unansweredLimit
	case errors.Is(err, dlock.ErrUnreachable):
		return undoLimit
	}
	return cleanLimit
}

// withStatus gives an error its exit status. If the store cannot be used, the error names it.
func withStatus(store *stores.Store, err error) error {
	if err == nil || errors.As(err, new(*statusError)) {
		return err
	}
	err = classify(err)
	switch status := exitStatus(err); status {
	case exitUnavailable, exitDenied, exitMisconfigured:
		return &statusError{status, store.CannotUse(errors.Unwrap(err))}
	}
	return err
}
