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
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/drivertest"
)

// fileStore keeps each lock in a file of a folder. It is as small as the contract allows: a store of your
// own may begin as a copy of this file and of flock_unix_test.go.
type fileStore struct{ dir string }

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

// grantTo decides an attempt.
func (l *fileLock) grantTo(req driver.Request) (driver.Grant, error) {
	now := time.Now()
	switch {
	case l.heldBy(req.Owner):
	case now.Before(l.Expires):
		return driver.Grant{}, &driver.HeldError{Name: req.Name, Token: l.Token, Holder: l.Holder, Remaining: l.Expires.Sub(now)}
	default:
		*l = fileLock{Owner: req.Owner.Hex(), Token: l.Token + 1, Holder: req.Holder}
	}
	l.extend(req.TTL)
	return driver.Grant{Name: req.Name, Owner: req.Owner, Token: l.Token, TTL: req.TTL}, nil
}

// change reads what is known about name, lets f change it, and writes it again, in one step: the file is
// locked meanwhile.
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
	if err := flock(file); err != nil {
		return err
	}
	var l fileLock
	if err := json.NewDecoder(file).Decode(&l); err != nil && err != io.EOF {
		return err
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
	err = s.change(ctx, req.Name, func(l *fileLock) (err error) {
		grant, err = l.grantTo(req)
		return err
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
	return driver.Traits{Store: "file", Fencing: driver.FencingStrong, OneMachine: true, MinTTL: 10 * time.Millisecond}
}

func (s fileStore) Close() error { return nil }

// envDir is the variable by which another process of the kit learns where the files are.
const envDir = "DRIVERTEST_DIR"

// fileConfig binds a store of files to the kit. TestMain has to call drivertest.Work: see its comment.
func fileConfig(t *testing.T, open func(dir string) driver.Store) drivertest.Config {
	dir := t.TempDir()
	return drivertest.Config{
		Open: func(context.Context) (driver.Store, error) { return open(dir), nil },
		Worker: func() *exec.Cmd {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), envDir+"="+dir)
			return cmd
		},
	}
}

// TestProcesses runs the whole kit on a store that processes share.
func TestProcesses(t *testing.T) {
	drivertest.Run(t, fileConfig(t, func(dir string) driver.Store { return fileStore{dir} }))
}
