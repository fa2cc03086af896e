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
)

// What the command finds in its environment.
const (
	nameVariable  = "DLOCK_NAME"
	tokenVariable = "DLOCK_TOKEN"
	// heldVariable lists the locks of all dlock execs around the command as
	// "hash:token,hash:token". The hash covers store and name.
	heldVariable = "DLOCK_HELD"
)

// lockHash identifies a name in a store without telling either.
func lockHash(identity, name string) string {
	sum := sha256.Sum256([]byte(identity + "\x00" + name))
	return hex.EncodeToString(sum[:16])
}

// childEnvironment adds what the command may know about its lock. An outer
// lock's variables are replaced, except that it stays in the list.
func childEnvironment(environment []string, identity, name string, token uint64) []string {
	var child []string
	held := ""
	for _, entry := range environment {
		switch key, value, _ := strings.Cut(entry, "="); key {
		case nameVariable, tokenVariable:
		case heldVariable:
			held = value + ","
		default:
			child = append(child, entry)
		}
	}
	number := strconv.FormatUint(token, 10)
	return append(child,
		nameVariable+"="+name,
		tokenVariable+"="+number,
		heldVariable+"="+strings.TrimPrefix(held, ",")+lockHash(identity, name)+":"+number,
	)
}

// inheritedToken returns the token with which a dlock exec around this one
// took the lock, by the list in the environment.
func inheritedToken(list, hash string) (uint64, bool) {
	for entry := range strings.SplitSeq(list, ",") {
		if number, found := strings.CutPrefix(entry, hash+":"); found {
			if token, err := strconv.ParseUint(number, 10, 64); err == nil {
				return token, true
			}
		}
	}
	return 0, false
}

// refuseSelfWait finds out that the lock is held by a dlock exec that waits for
// this one. The variable alone does not prove it: processes in the background
// keep it when the lock is long released.
func (e *execution) refuseSelfWait(ctx context.Context, client *dlock.Client, store *openStore) error {
	token, inherited := inheritedToken(os.Getenv(heldVariable), lockHash(store.identity, e.name))
	if !inherited {
		return nil
	}
	info, held, err := client.Find(ctx, e.name)
	switch {
	case errors.Is(err, dlock.ErrUnsupported):
	case err != nil:
		return classify(err)
	case !held || info.Token != token:
		return nil
	}
	return e.notAcquired(fmt.Sprintf("%s is held by the dlock exec around this one (token %d): it would wait for itself",
		harmless(e.name), token))
}
