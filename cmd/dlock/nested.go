package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
)

// What the command finds in its environment.
const (
	nameVariable  = "DLOCK_NAME"  // several names are one a line
	tokenVariable = "DLOCK_TOKEN" // in the same order
	// heldVariable lists the locks of all dlocks around the command as
	// "hash of the name:token:process id:hash of store and name", with commas.
	heldVariable = "DLOCK_HELD"
)

// lockHash identifies a name in a store without telling either.
func lockHash(identity, name string) string {
	sum := sha256.Sum256([]byte(identity + "\x00" + name))
	return hex.EncodeToString(sum[:16])
}

// heldLock is one entry of heldVariable.
type heldLock struct {
	name  string // hashed
	token uint64
	pid   int    // of the dlock that holds it
	store string // hashed, together with the name
}

func (h heldLock) String() string { return fmt.Sprintf("%s:%d:%d:%s", h.name, h.token, h.pid, h.store) }

// parseHeldLock returns false for an entry that this dlock did not write.
func parseHeldLock(text string) (heldLock, bool) {
	fields := strings.Split(text, ":")
	if len(fields) != 4 {
		return heldLock{}, false
	}
	token, err := strconv.ParseUint(fields[1], 10, 64)
	pid, err2 := strconv.Atoi(fields[2])
	return heldLock{fields[0], token, pid, fields[3]}, err == nil && err2 == nil
}

// childEnvironment adds what the command may know about its locks. An outer
// lock's variables are replaced, except that it stays in the list.
func childEnvironment(environment []string, identity string, locks []heldName) []string {
	var child []string
	var held, names, tokens []string
	for _, entry := range environment {
		switch key, value, _ := strings.Cut(entry, "="); key {
		case nameVariable, tokenVariable:
		case heldVariable:
			held = strings.FieldsFunc(value, func(c rune) bool { return c == ',' })
		default:
			child = append(child, entry)
		}
	}
	for _, lock := range locks {
		names = append(names, lock.name)
		tokens = append(tokens, strconv.FormatUint(lock.token, 10))
		held = append(held, heldLock{lockHash("", lock.name), lock.token, os.Getpid(), lockHash(identity, lock.name)}.String())
	}
	return append(child,
		nameVariable+"="+strings.Join(names, "\n"), // no name has a line end
		tokenVariable+"="+strings.Join(tokens, "\n"),
		heldVariable+"="+strings.Join(held, ","),
	)
}

// refuseSelfWait finds out that a lock is held by a dlock that waits for this one. The
// store says which process holds the lock and with which token, and that is compared
// with what the dlocks around this one have left in the environment: the same store may
// have many URLs. The variable alone proves nothing, since processes in the
// background keep it when the lock is long released.
func (q *acquisition) refuseSelfWait(ctx context.Context, client *dlock.Client, store *openStore) error {
	for _, name := range q.names {
		for entry := range strings.SplitSeq(os.Getenv(heldVariable), ",") {
			outer, ok := parseHeldLock(entry)
			if !ok || outer.name != lockHash("", name) {
				continue
			}
			waits, err := outer.holds(ctx, client, store, name)
			if err != nil {
				return err
			}
			if waits {
				return q.notAcquired(fmt.Sprintf("%s is held by the dlock around this one (token %d): it would wait for itself",
					harmless(name), outer.token))
			}
		}
	}
	return nil
}

// holds reports whether the store says that the entry's process holds the lock.
func (h heldLock) holds(ctx context.Context, client *dlock.Client, store *openStore, name string) (bool, error) {
	sameURL := h.store == lockHash(store.identity, name)
	info, held, err := client.Find(ctx, name)
	switch {
	case errors.Is(err, dlock.ErrUnsupported):
		return sameURL, nil
	case err != nil:
		return false, err
	case !held || info.Token != h.token:
		return false, nil
	case info.Holder == (driver.Holder{}): // the store does not know
		return sameURL, nil
	}
	host, err := os.Hostname()
	return info.Holder.PID == h.pid && (err != nil || info.Holder.Host == host), nil
}
