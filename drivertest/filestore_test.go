package drivertest_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/drivertest"
)

// fileStore keeps each lock in a file, so that the kit's clauses about
// processes are tried here too, on a sound store and on one that is not. It is
// as small as the contract allows, and not meant for anything else.
type fileStore struct {
	dir  string
	mode string
}

// The modes of a fileStore, of which only careful is sound.
const (
	careful  = "careful"
	careless = "careless" // does without the operating system's lock
	immortal = "immortal" // locks do not expire
)

// fileLock stays when the lock is released: the token must not start again.
type fileLock struct {
	Owner   string
	Token   uint64
	Expires time.Time
	Holder  driver.Holder
}

func (l *fileLock) heldBy(owner driver.Owner) bool {
	return l.Owner == owner.Hex() && time.Now().Before(l.Expires)
}

// extend never shortens.
func (l *fileLock) extend(ttl time.Duration) {
	if expires := time.Now().Add(ttl); expires.After(l.Expires) {
		l.Expires = expires
	}
}

// change reads what is known about name, lets f change it, and writes it again.
func (s fileStore) change(ctx context.Context, name string, f func(*fileLock) error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	path := filepath.Join(s.dir, fmt.Sprintf("%x", sha256.Sum256([]byte(name))))
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	if s.mode != careless {
		if err := flock(file); err != nil {
			return err
		}
	}
	var l fileLock
	// To the careless, what cannot be read is what another is just writing.
	if err := json.NewDecoder(file).Decode(&l); err != nil && s.mode != careless && err != io.EOF {
		return err
	}
	if s.mode == careless {
		if err := pause(ctx); err != nil {
			return err
		}
	}
	if err := f(&l); err != nil {
		return err
	}
	text, err := json.Marshal(l)
	if err != nil {
		return err
	}
	if err := file.Truncate(int64(len(text))); err != nil {
		return err
	}
	_, err = file.WriteAt(text, 0)
	return err
}

func (s fileStore) Acquire(ctx context.Context, req driver.Request) (grant driver.Grant, err error) {
	err = s.change(ctx, req.Name, func(l *fileLock) error {
		now := time.Now()
		switch {
		case l.heldBy(req.Owner):
		case now.Before(l.Expires):
			return &driver.HeldError{Name: req.Name, Token: l.Token, Holder: l.Holder, Remaining: l.Expires.Sub(now)}
		default:
			*l = fileLock{Owner: req.Owner.Hex(), Token: l.Token + 1, Holder: req.Holder}
		}
		l.extend(req.TTL)
		if s.mode == immortal {
			l.Expires = now.Add(time.Hour)
		}
		grant = driver.Grant{Name: req.Name, Owner: req.Owner, Token: l.Token, TTL: req.TTL}
		return nil
	})
	return grant, err
}

func (s fileStore) Renew(ctx context.Context, grants []driver.Grant) []error {
	errs := make([]error, len(grants))
	for i, grant := range grants {
		errs[i] = s.change(ctx, grant.Name, func(l *fileLock) error {
			if !l.heldBy(grant.Owner) {
				return driver.ErrNotHeld
			}
			l.extend(grant.TTL)
			return nil
		})
	}
	if errors.Join(errs...) == nil {
		return nil
	}
	return errs
}

func (s fileStore) Release(ctx context.Context, grant driver.Grant) error {
	return s.change(ctx, grant.Name, func(l *fileLock) error {
		if !l.heldBy(grant.Owner) || grant.Token != 0 && grant.Token != l.Token {
			return driver.ErrNotHeld
		}
		*l = fileLock{Token: l.Token}
		return nil
	})
}

func (s fileStore) Traits() driver.Traits {
	return driver.Traits{Store: "file", Fencing: driver.FencingStrong, MinTTL: 10 * time.Millisecond}
}

func (s fileStore) Close() error { return nil }

// Where the files are, and how they are used, the worker learns from its environment.
const (
	envDir  = "DRIVERTEST_DIR"
	envMode = "DRIVERTEST_MODE"
)

func openFromEnvironment(context.Context) (driver.Store, error) {
	return fileStore{dir: os.Getenv(envDir), mode: os.Getenv(envMode)}, nil
}

func fileConfig(t *testing.T, mode string) drivertest.Config {
	dir := t.TempDir()
	return drivertest.Config{
		Open: func(context.Context) (driver.Store, error) { return fileStore{dir, mode}, nil },
		Worker: func() *exec.Cmd {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), envDir+"="+dir, envMode+"="+mode)
			return cmd
		},
	}
}

// TestProcesses runs the whole kit on a store that processes share.
func TestProcesses(t *testing.T) {
	drivertest.Run(t, fileConfig(t, careful))
}

// TestBrokenProcesses is TestBrokenStores for mistakes that take more than one
// process to notice.
func TestBrokenProcesses(t *testing.T) {
	for _, broken := range []struct{ mode, clause string }{
		{careless, "exclusion-processes"},
		{immortal, "killed-process"},
	} {
		t.Run(broken.mode, func(t *testing.T) {
			t.Parallel()
			named := clausesOf(t, drivertest.CheckImpatiently(t.Context(), fileConfig(t, broken.mode)))
			t.Logf("names %q", named)
			if !slices.Contains(named, broken.clause) {
				t.Errorf("the kit does not name %q", broken.clause)
			}
		})
	}
}
