package redislock

import (
	"context"
	"crypto/sha1" //nolint:gosec // servers identify scripts by it
	"embed"
	"encoding/hex"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/*.lua
var lua embed.FS

// script is one atomic operation on the server.
type script struct {
	byHash   []any   // begins the command if the server knows the script
	bySource []any   // begins it otherwise
	cluster  *script // the variant for cluster mode; nil if it is the same

	used atomic.Bool // a server has run the script, and so has it in its cache, unless it was restarted or flushed
}

// scripts are the operations of one protocol.
type scripts struct {
	acquireByClock    *script // one or several names, by the server's clock
	acquireByEstimate *script // one name, by an estimate of the clock; nil for the plain protocol
	acquireAnyMode    *script // one name in any mode, fair or not; nil for the plain protocol
	renew             *script
	release           *script // by the owner; also of an unknown outcome, of a share, and of a place in the queue
	releaseExact      *script // of an exclusive lock, by the whole holder value; nil for the plain protocol
	downgrade         *script // nil for the plain protocol
	raise             *script // nil for Redisson's protocol
	breakLock         *script
	inspect           *script
}

func newScripts(p Protocol, step uint64) *scripts {
	name, newScript := p.String(), func(files ...string) *script { return newScript(step, files...) }
	s := &scripts{
		acquireByClock: newScript("common", name, "draw", "acquire_by_clock"),
		renew:          newScript("common", name, "renew"),
		inspect:        newScript("common", name, name+"_inspect"),
	}
	if p == Plain {
		s.raise = newScript("common", name, "plain_raise")
		s.release = newScript("publish", "plain_release")
		s.breakLock = newScript("common", name, "publish", "plain_break")
		return s
	}
	s.acquireAnyMode = newScript("common", name, "draw", "publish", "redisson_queue", "redisson_acquire_any_mode")
	s.acquireByEstimate = newScript("redisson_acquire_by_estimate")
	s.release = newScript("common", name, "publish", "redisson_queue", "redisson_release")
	s.releaseExact = newScript("publish", "redisson_release_exact")
	s.downgrade = newScript("common", name, "publish", "redisson_queue", "redisson_downgrade")
	s.breakLock = newScript("common", name, "publish", "redisson_queue", "redisson_break")
	return s
}

// newScript makes a script of files of the folder lua, with a variant for cluster mode if it publishes.
func newScript(step uint64, files ...string) *script {
	sc := join(step, false, files)
	if slices.Contains(files, "publish") {
		sc.cluster = join(step, true, files)
	}
	return sc
}

// join joins files without their comments. TOKEN_STEP in them is the step, and lines that end with CLUSTER are for
// cluster mode.
func join(step uint64, clustered bool, files []string) *script {
	var source strings.Builder
	for _, file := range files {
		text, err := lua.ReadFile("lua/" + file + ".lua")
		if err != nil {
			panic(err) // the file is part of this package
		}
		for line := range strings.Lines(string(text)) {
			code, onlyClustered := strings.CutSuffix(strings.TrimSpace(line), "-- CLUSTER")
			if code != "" && !strings.HasPrefix(code, "--") && (clustered || !onlyClustered) {
				source.WriteString(strings.ReplaceAll(line, "TOKEN_STEP", strconv.FormatUint(step, 10)))
			}
		}
	}
	sum := sha1.Sum([]byte(source.String())) //nolint:gosec // no secret
	return &script{byHash: []any{"evalsha", hex.EncodeToString(sum[:])}, bySource: []any{"eval", source.String()}}
}

func (sc *script) command(ctx context.Context, known bool, keys []string, args []any) noRetryCmd {
	start := sc.bySource
	if known {
		start = sc.byHash
	}
	all := make([]any, 0, 3+len(keys)+len(args))
	all = append(append(all, start...), len(keys))
	for _, key := range keys {
		all = append(all, key)
	}
	return noRetryCmd{redis.NewCmd(ctx, append(all, args...)...)}
}

// eval runs a script. The first time it sends the source, which saves a round trip if no server
// knows the script. If too few replicas acknowledge, it returns the reply and ErrNotReplicated.
func (r *route) eval(ctx context.Context, sc *script, keys []string, args ...any) (any, error) {
	if r.clustered.Load() && sc.cluster != nil {
		sc = sc.cluster
	}
	cmd := sc.command(ctx, sc.used.Load(), keys, args)
	err := r.do(ctx, keys[0], cmd)
	if haveResults(err) && isUnknownScript(cmd.Err()) {
		cmd = sc.command(ctx, false, keys, args)
		err = r.do(ctx, keys[0], cmd)
	}
	if !haveResults(err) {
		return nil, err
	}
	if failed := explainFor(keys, cmd.Err()); failed != nil {
		return nil, failed
	}
	if !sc.used.Load() {
		sc.used.Store(true)
	}
	return cmd.Val(), err
}

// scriptRun is one run of a script for one or several locks.
type scriptRun struct {
	keys []string
	args []any
	at   []int // the positions of its locks among all
	cmd  noRetryCmd
	err  error // of sending cmd, which has its own error
}

// evalAll runs a script several times in one pipeline to one server. It sends only hashes at first.
// If the server does not know the script, the first run gets the source, which makes the hashes of
// the others valid. Runs that were redirected get the source in a third round.
func (r *route) evalAll(ctx context.Context, to *sender, sc *script, runs []*scriptRun) {
	runs = slices.Clone(runs)
	for round := 0; len(runs) > 0; round++ {
		commands := make([]redis.Cmder, len(runs))
		for i, run := range runs {
			run.cmd = sc.command(ctx, round == 0 || round == 1 && i > 0, run.keys, run.args)
			commands[i] = run.cmd
		}
		err := to.do(ctx, commands...)
		servers := r.allServers(ctx)
		var wg sync.WaitGroup
		for _, run := range runs {
			switch run.err = err; {
			case r.redirected(err, run.cmd):
				wg.Go(func() { run.err = r.follow(ctx, run.cmd, servers) })
			case r.clientReplaced(err, run.cmd):
				wg.Go(func() { run.err = r.do(ctx, run.keys[0], run.cmd) })
			}
		}
		wg.Wait()
		runs = slices.DeleteFunc(runs, func(run *scriptRun) bool {
			return !haveResults(run.err) || !isUnknownScript(run.cmd.Err())
		})
	}
}

// haveResults reports, by the error of do, whether the commands were answered or have failed for
// good. If not, they may still be under way and must not be read.
func haveResults(err error) bool { return err == nil || errors.Is(err, ErrNotReplicated) }
