package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/cmd/dlock/internal/stores"
	"github.com/dlock-go/dlock/cmd/dlock/internal/terminal"
	"github.com/dlock-go/dlock/driver"
)

// The variables in the environment of the command.
const (
	nameVariable  = "DLOCK_NAME"  // several names are separated by line ends
	tokenVariable = "DLOCK_TOKEN" // in the same order
	// heldVariable lists the locks of all dlocks around the command, separated by commas,
	// as "hash of the name:token:process id:hash of store and name".
	heldVariable = "DLOCK_HELD"
)

// lockHash identifies a name in a store without revealing either.
func lockHash(identity, name string) string {
	sum := sha256.Sum256([]byte(identity + "\x00" + name))
	return fmt.Sprintf("%x", sum[:16])
}

type heldLock struct {
	name  string // hashed
	token uint64
	pid   int    // of the dlock that holds the lock
	store string // hashed, together with the name
}

// parseHeldLock returns false for an entry that dlock did not write.
func parseHeldLock(text string) (heldLock, bool) {
	fields := strings.Split(text, ":")
	if len(fields) != 4 {
		return heldLock{}, false
	}
	token, badToken := strconv.ParseUint(fields[1], 10, 64)
	pid, badPID := strconv.Atoi(fields[2])
	return heldLock{fields[0], token, pid, fields[3]}, badToken == nil && badPID == nil
}

// childEnvironment adds the variables of the locks to an environment. It replaces those of an
// outer lock, which only stays in the list of heldVariable.
func childEnvironment(environment, names []string, locks *heldLocks) []string {
	return append(without(environment, nameVariable, tokenVariable, heldVariable),
		lockVariables(names, locks.Token, locks.store.Identity)...)
}

// maxVariable is the limit for a variable with its name: MAX_ARG_STRLEN of Linux, without a zero byte.
const maxVariable = 128<<10 - 1

// checkVariables returns an error if a variable of the command's environment would be too long, which
// execve would find only when the locks are held.
func checkVariables(names []string) error {
	longest := func(string) uint64 { return math.MaxUint64 }
	for _, entry := range lockVariables(names, longest, "") {
		if variable, _, _ := strings.Cut(entry, "="); len(entry) > maxVariable {
			return usagef("%d names are too many: $%s of the command could have %d bytes, the limit is %d",
				len(names), variable, len(entry), maxVariable)
		}
	}
	return nil
}

func lockVariables(names []string, token func(name string) uint64, identity string) []string {
	var tokens, held []string
	for _, name := range names {
		tokens = append(tokens, strconv.FormatUint(token(name), 10))
		held = append(held, fmt.Sprintf("%s:%d:%d:%s", lockHash("", name), token(name), os.Getpid(), lockHash(identity, name)))
	}
	list := strings.Join(held, ",")
	if outer := os.Getenv(heldVariable); outer != "" {
		if len(heldVariable+"="+outer+","+list) > maxVariable { // a chain of background jobs
			outer = strings.Join(slices.DeleteFunc(strings.Split(outer, ","), hasEnded), ",")
		}
		list = outer + "," + list
	}
	return []string{
		nameVariable + "=" + strings.Join(names, "\n"), // no name contains a line end
		tokenVariable + "=" + strings.Join(tokens, "\n"),
		heldVariable + "=" + list,
	}
}

// hasEnded reports whether an entry of heldVariable is that of a process that does not exist any more.
func hasEnded(entry string) bool {
	held, ok := parseHeldLock(entry)
	if !ok {
		return true
	}
	process, err := os.FindProcess(held.pid) // always succeeds on Unix
	return err == nil && errors.Is(process.Signal(syscall.Signal(0)), os.ErrProcessDone)
}

// refuseSelfWait returns an error if a dlock around this one holds a lock that this one
// wants, also as a share or a permit: a second one may have to wait. It asks the store, because one
// store can have many URLs, and processes in the background keep heldVariable after a release.
func (r *lockRequest) refuseSelfWait(ctx context.Context, client *dlock.Client, store *stores.Store) error {
	for _, name := range r.names {
		for entry := range strings.SplitSeq(os.Getenv(heldVariable), ",") {
			outer, ok := parseHeldLock(entry)
			if !ok || outer.name != lockHash("", name) {
				continue
			}
			holds, err := outer.holds(ctx, client, store, name)
			if err != nil {
				return err
			}
			if holds {
				return r.notAcquired(fmt.Sprintf("%s is held by the dlock around this one (token %d): it could wait for itself",
					terminal.Quote(name), outer.token))
			}
		}
	}
	return nil
}

// holds reports whether the process of the entry holds the lock in this store.
func (h heldLock) holds(ctx context.Context, client *dlock.Client, store *stores.Store, name string) (bool, error) {
	sameURL := h.store == lockHash(store.Identity, name)
	holders, err := holdersOf(ctx, client, name)
	if errors.Is(err, dlock.ErrUnsupported) {
		return sameURL, nil
	}
	i := slices.IndexFunc(holders, func(info driver.Info) bool { return info.Token == h.token })
	switch {
	case err != nil || i < 0:
		return false, err
	case holders[i].Holder == (driver.Holder{}): // the store keeps no holder
		return sameURL, nil
	}
	host, err := os.Hostname()
	return holders[i].Holder.PID == h.pid && (err != nil || holders[i].Holder.Host == host), nil
}
