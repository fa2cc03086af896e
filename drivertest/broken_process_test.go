package drivertest_test

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/drivertest"
)

// carelessStore decides in one step and writes in the next.
type carelessStore struct{ fileStore }

func (s carelessStore) Acquire(ctx context.Context, req driver.Request) (grant driver.Grant, err error) {
	var read fileLock
	err = s.change(ctx, req.Name, func(l *fileLock) (err error) {
		read = *l
		grant, err = read.grantTo(req)
		return err
	})
	if err == nil {
		err = pause(ctx)
	}
	if err == nil {
		err = s.change(ctx, req.Name, func(l *fileLock) error {
			*l = read
			return nil
		})
	}
	return grant, err
}

// immortalStore keeps locks for longer than it promised.
type immortalStore struct{ fileStore }

func (s immortalStore) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	ttl := req.TTL
	req.TTL = time.Hour
	grant, err := s.fileStore.Acquire(ctx, req)
	grant.TTL = ttl
	return grant, err
}

// brokenFileStores are the mistakes that it takes more than one process to notice, with the clause that
// names each.
var brokenFileStores = map[string]struct {
	open   func(dir string) driver.Store
	clause string
}{
	"careless": {func(dir string) driver.Store { return carelessStore{fileStore{dir}} }, "exclusion-processes"},
	"immortal": {func(dir string) driver.Store { return immortalStore{fileStore{dir}} }, "killed-process"},
}

// envMistake is the variable by which another process learns which mistake its store makes.
const envMistake = "DRIVERTEST_MISTAKE"

// openFromEnvironment opens the store of a process that the kit started.
func openFromEnvironment(context.Context) (driver.Store, error) {
	dir := os.Getenv(envDir)
	if broken, ok := brokenFileStores[os.Getenv(envMistake)]; ok {
		return broken.open(dir), nil
	}
	return fileStore{dir}, nil
}

// TestBrokenProcesses is TestBrokenStores for mistakes that take more than one
// process to notice.
func TestBrokenProcesses(t *testing.T) {
	for mistake, broken := range brokenFileStores {
		t.Run(mistake, func(t *testing.T) {
			t.Parallel()
			cfg := fileConfig(t, broken.open)
			worker := cfg.Worker
			cfg.Worker = func() *exec.Cmd {
				cmd := worker()
				cmd.Env = append(cmd.Env, envMistake+"="+mistake)
				return cmd
			}
			named := clausesOf(t, drivertest.CheckImpatiently(t.Context(), cfg))
			t.Logf("names %q", named)
			if !slices.Contains(named, broken.clause) {
				t.Errorf("the kit does not name %q", broken.clause)
			}
		})
	}
}
