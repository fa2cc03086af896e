package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

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

// heldLock is one entry of heldVariable.
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
func childEnvironment(environment []string, identity string, locks []heldName) []string {
	var names, tokens, held []string
	if outer := os.Getenv(heldVariable); outer != "" {
		held = append(held, outer)
	}
	for _, lock := range locks {
		names = append(names, lock.name)
		tokens = append(tokens, strconv.FormatUint(lock.token, 10))
		held = append(held, fmt.Sprintf("%s:%d:%d:%s", lockHash("", lock.name), lock.token, os.Getpid(), lockHash(identity, lock.name)))
	}
	return append(without(environment, nameVariable, tokenVariable, heldVariable),
		nameVariable+"="+strings.Join(names, "\n"), // no name contains a line end
		tokenVariable+"="+strings.Join(tokens, "\n"),
		heldVariable+"="+strings.Join(held, ","),
	)
}

// refuseSelfWait returns an error if a dlock around this one holds a lock that this one
// wants. It asks the store, because the same store can have many URLs, and processes in the
// background keep heldVariable after the lock was released.
func (q *acquisition) refuseSelfWait(ctx context.Context, client *dlock.Client, store *stores.Store) error {
	for _, name := range q.names {
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
				return q.notAcquired(fmt.Sprintf("%s is held by the dlock around this one (token %d): it would wait for itself",
					terminal.Quote(name), outer.token))
			}
		}
	}
	return nil
}

// holds reports whether the process of the entry holds the lock in this store.
func (h heldLock) holds(ctx context.Context, client *dlock.Client, store *stores.Store, name string) (bool, error) {
	sameURL := h.store == lockHash(store.Identity, name)
	info, held, err := client.Find(ctx, name)
	switch {
	case errors.Is(err, dlock.ErrUnsupported):
		return sameURL, nil
	case err != nil:
		return false, err
	case !held || info.Token != h.token:
		return false, nil
	case info.Holder == (driver.Holder{}): // the store keeps no holder
		return sameURL, nil
	}
	host, err := os.Hostname()
	return info.Holder.PID == h.pid && (err != nil || info.Holder.Host == host), nil
}
