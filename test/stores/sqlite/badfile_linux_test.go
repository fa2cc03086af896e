package sqlite

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/sqllock"
)

// mount mounts a file system for the time of the test. The tests run as root.
func mount(t *testing.T, source, target, kind string, flags uintptr, data string) {
	t.Helper()
	if err := syscall.Mount(source, target, kind, flags, data); err != nil {
		t.Fatalf("this test needs to mount file systems (root, CAP_SYS_ADMIN): %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(target, syscall.MNT_DETACH); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
}

// remount changes what mount has mounted.
func remount(t *testing.T, target string, flags uintptr) {
	t.Helper()
	if err := syscall.Mount("", target, "", syscall.MS_REMOUNT|flags, ""); err != nil {
		t.Fatalf("this test needs to mount file systems (root, CAP_SYS_ADMIN): %v", err)
	}
}

// wantUnfit demands an error that says what is wrong. A file is never unreachable.
func wantUnfit(t *testing.T, err, kind error, because string) {
	t.Helper()
	if !errors.Is(err, kind) || errors.Is(err, driver.ErrUnreachable) || !strings.Contains(err.Error(), because) {
		t.Errorf("got %v, want an error of the kind %q that says %q", err, kind, because)
	}
	var coded interface{ Code() int }
	if !errors.As(err, &coded) {
		t.Errorf("%v does not wrap the driver's error", err)
	}
}

func tryOpen(t *testing.T, path string) error {
	t.Helper()
	store, err := openFile(t.Context(), path)
	if err == nil {
		t.Cleanup(func() { _ = store.Close() })
	}
	return err
}

func TestNotADatabase(t *testing.T) {
	t.Parallel()
	path := tempFile(t)
	text := []byte(strings.Repeat("Dear diary, today nobody held a lock. ", 100))
	check(t, os.WriteFile(path, text, 0o600))
	wantUnfit(t, tryOpen(t, path), driver.ErrMisconfigured, "not an SQLite database")
	for _, path := range []string{t.TempDir(), filepath.Join(t.TempDir(), "missing", "locks.db")} {
		wantUnfit(t, tryOpen(t, path), driver.ErrMisconfigured, "missing, read-only or not accessible")
	}
	if after, err := os.ReadFile(path); err != nil || string(after) != string(text) {
		t.Errorf("the file that is not a database was changed: %v", err)
	}
}

// TestReadOnlyFileSystem: the error says so, whether the file exists or not.
func TestReadOnlyFileSystem(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	mount(t, "tmpfs", folder, "tmpfs", 0, "size=1m")
	path := filepath.Join(folder, "locks.db")
	openURL := func(path string) error {
		store, err := sqllock.Open(t.Context(), "sqlite://"+path, nil)
		if err == nil {
			_, err = store.Acquire(t.Context(), request("x"))
			_ = store.Close()
		}
		return err
	}
	check(t, openURL(path))
	remount(t, folder, syscall.MS_RDONLY)
	wantUnfit(t, openURL(path), driver.ErrMisconfigured, "the file system is read-only")
	wantUnfit(t, openURL(filepath.Join(folder, "new.db")), driver.ErrMisconfigured, "the file system is read-only")
	wantUnfit(t, tryOpen(t, filepath.Join(folder, "new.db")), driver.ErrMisconfigured, "missing, read-only or not accessible")
}

// TestReadOnlyFile: what is there can be seen and examined, and not changed.
func TestReadOnlyFile(t *testing.T) {
	t.Parallel()
	path := tempFile(t)
	writer := openStore(t, path)
	grant := mustAcquire(t, writer, request("x"))
	mount(t, path, path, "", syscall.MS_BIND, "")
	remount(t, path, syscall.MS_BIND|syscall.MS_RDONLY)

	store := openStore(t, path)
	_, err := store.Acquire(t.Context(), request("y"))
	wantUnfit(t, err, driver.ErrDenied, "cannot be written")
	wantUnfit(t, store.Release(t.Context(), grant), driver.ErrDenied, "cannot be written")
	for _, err := range store.Renew(t.Context(), []driver.Grant{grant}) {
		wantUnfit(t, err, driver.ErrDenied, "cannot be written")
	}
	_, err = store.AcquireAll(t.Context(), []driver.Request{request("y"), request("z")})
	wantUnfit(t, err, driver.ErrDenied, "cannot be written")
	listed := 0
	for info, err := range store.List(t.Context(), "") {
		if err != nil || info.Name != "x" {
			t.Errorf("list: %+v, %v", info, err)
		}
		listed++
	}
	if listed != 1 {
		t.Errorf("%d locks are listed, want 1", listed)
	}
	if level := finding(t, store, "writable").Level; level != driver.LevelProblem {
		t.Errorf("Diagnose grades a file that cannot be written %q", level)
	}
}

// TestFullDisk: an error that says so, nothing half-done, nothing lost.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	mount(t, "tmpfs", folder, "tmpfs", 0, "size=256k")
	path := filepath.Join(folder, "locks.db")
	store := openStore(t, path)
	kept := mustAcquire(t, store, request("kept"))

	filler, err := os.Create(filepath.Join(folder, "filler"))
	check(t, err)
	defer filler.Close()
	full := refill(t, filler)
	for range 3 {
		_, err = store.Acquire(t.Context(), request("one too many"))
		wantUnfit(t, err, driver.ErrMisconfigured, "the disk is full")
	}
	wantUnfit(t, tryOpen(t, filepath.Join(folder, "new.db")), driver.ErrMisconfigured, "the disk is full")
	for size := 0; size <= 64<<10; size += 4 << 10 { // enough for one of the files that SQLite writes and not for the next
		check(t, filler.Truncate(max(0, full-int64(size))))
		path := filepath.Join(folder, "new.db")
		if err := tryOpen(t, path); err != nil {
			wantUnfit(t, err, driver.ErrMisconfigured, "the disk is full")
		}
		for _, suffix := range []string{"", "-wal", "-shm", "-journal"} {
			_ = os.Remove(path + suffix)
		}
		refill(t, filler)
	}

	check(t, os.Truncate(filler.Name(), 0))
	if grant := mustAcquire(t, store, request("one too many")); grant.Token != 1 {
		t.Errorf("failed attempts left a trace: token %d, want 1", grant.Token)
	}
	mustRenew(t, store, kept)
}

// refill writes to a file until the disk is full, and returns the size of the file.
func refill(t *testing.T, filler *os.File) int64 {
	t.Helper()
	_, err := filler.Seek(0, io.SeekEnd)
	for err == nil {
		_, err = filler.Write(make([]byte, 512))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("filling the disk: %v", err)
	}
	info, err := filler.Stat()
	check(t, err)
	return info.Size()
}

// finding returns what Diagnose says about one check.
func finding(t *testing.T, store *sqllock.Store, name string) driver.Finding {
	t.Helper()
	findings, err := store.Diagnose(context.Background())
	check(t, err)
	for _, f := range findings {
		if f.Check == name {
			return f
		}
	}
	t.Fatalf("Diagnose does not check %s: %+v", name, findings)
	return driver.Finding{}
}
