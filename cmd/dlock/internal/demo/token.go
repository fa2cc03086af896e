package demo

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/cmd/dlock/internal/child"
	"github.com/dlock-go/dlock/internal/backoff"
)

// Token is the demo in which processes fetch a token that makes the last one invalid.
type Token struct {
	Stage
	Processes int
	Calls     int // of each process
}

// Check rejects invalid options.
func (t *Token) Check() error {
	const maxCalls = 1000
	switch {
	case t.Processes < 1 || t.Processes > maxProcesses:
		return usagef("--processes %d is outside 1 to %d", t.Processes, maxProcesses)
	case t.Calls < 1 || t.Calls > maxCalls:
		return usagef("--calls %d is outside 1 to %d", t.Calls, maxCalls)
	}
	return nil
}

// TokenJSON is one run in the output of --json.
type TokenJSON struct {
	Guard     Guard   `json:"guard"`
	Processes int     `json:"processes"`
	Calls     int     `json:"calls"`   // messages
	Failed    int     `json:"failed"`  // messages with an invalid token
	Fetches   int     `json:"fetches"` // of tokens
	Seconds   float64 `json:"seconds"`
}

// Run runs the demo without a lock and with one.
func (t *Token) Run(ctx context.Context) error {
	t.note("%d processes, %d calls each; the locks are in %s", t.Processes, t.Calls, t.Store.Name)
	t.table.Columns = columns("GUARD", "PROCESSES", "CALLS", "FAILED=0", "FETCHES=1")
	good := true
	for _, guard := range []Guard{None, Dlock} {
		r, logs, err := t.call(ctx, guard)
		if err != nil {
			return err
		}
		t.note("%s: %d of %d calls failed, tokens fetched: %d", guard, r.Failed, r.Calls, r.Fetches)
		if guard == Dlock {
			good = r.Failed == 0 && r.Fetches == 1
		}
		run := draw(guard, logs)
		run.Verdict, run.Bad = fmt.Sprintf("%d failed\n%d tokens fetched", r.Failed, r.Fetches), r.Failed > 0
		run.Stock, run.Of = r.Calls, "calls that were taken" // each call that was refused reduces it
		if err := t.add(run, r, guard, t.Processes, r.Calls, r.Failed, r.Fetches); err != nil {
			return err
		}
	}
	return t.finish(good, "with a lock no call should have failed, and one token should have been fetched", "dlock demo token",
		fmt.Sprintf("%d processes send %d messages each to a service that wants an access token, of which only the last that was fetched is valid. A bar is the time in which a process looked for a token in the file that they share, or fetched one.",
			t.Processes, t.Calls),
		fmt.Sprintf("The locks are in %s.", t.Store.Name))
}

// call lets all processes begin at the same time. When it returns, no process runs any more.
func (t *Token) call(ctx context.Context, guard Guard) (TokenJSON, []processLog, error) {
	service, err := startService(ctx)
	if err != nil {
		return TokenJSON{}, nil, err
	}
	begun := time.Now()
	logs, err := t.runUsers(ctx, userTask{
		Service: "http://" + service.address, File: filepath.Join(t.Folder, "token-"+string(guard)), Calls: t.Calls, Locked: guard == Dlock, Store: t.Store,
	})
	elapsed := time.Since(begun)
	service.close()
	service.mu.Lock()
	defer service.mu.Unlock()
	r := service.count
	r.Guard, r.Processes, r.Seconds = guard, t.Processes, float64(elapsed.Milliseconds())/1000
	return r, logs, err
}

func (t *Token) runUsers(ctx context.Context, task userTask) ([]processLog, error) {
	users, _, err := child.Start[bool](ctx, t.Processes, userRole, task)
	defer users.Wait()
	if err != nil {
		return nil, err
	}
	for _, user := range users {
		if err := user.Send(true); err != nil {
			return nil, err
		}
	}
	return child.ReceiveAll[processLog](users)
}

type userTask struct {
	Service string // URL
	File    string // through which the processes share the token
	Calls   int
	Locked  bool
	Store   Store
}

// user is a process that sends messages, for which it needs a token.
type user struct {
	userTask
	client *dlock.Client // nil: without a lock
	log    processLog
}

func runUser(parent *child.Parent) error {
	var u user
	if err := parent.Receive(&u.userTask); err != nil {
		return err
	}
	if u.Locked {
		client, closeAll, err := u.Store.client(parent.Context)
		if err != nil {
			return err
		}
		defer closeAll()
		u.client = client
	}
	if err := parent.AwaitStep(true); err != nil {
		return err
	}
	if err := u.work(parent.Context); err != nil {
		return err
	}
	return parent.Send(u.log)
}

// work sends the messages. After one that fails, the next one has another token.
func (u *user) work(ctx context.Context) error {
	token, err := u.token(ctx, "")
	if err != nil {
		return err
	}
	// All messages take longer than issuing a token, so that a user notices an invalid one.
	ticker := time.NewTicker(2 * issueTime / time.Duration(u.Calls))
	defer ticker.Stop()
	defer func() { u.log.Ended = time.Now().UnixNano() }()
	for range u.Calls {
		status, _, err := request(ctx, http.DefaultClient, http.MethodPost, u.Service+"/message", token,
			http.StatusNoContent, http.StatusUnauthorized)
		if err != nil {
			return err
		}
		if status == http.StatusUnauthorized {
			u.log.Falls = append(u.log.Falls, time.Now().UnixNano())
			if token, err = u.token(ctx, token); err != nil {
				return err
			}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// token returns the token that the processes share. Without a token, or with only the refused
// one, it fetches a new one. Under the lock just one process does.
func (u *user) token(ctx context.Context, refused string) (token string, err error) {
	readOrFetch := func(ctx context.Context) (err error) {
		v := visit{From: time.Now().UnixNano(), What: "found a token"}
		defer func() {
			v.To = time.Now().UnixNano()
			u.log.Visits = append(u.log.Visits, v)
		}()
		text, err := os.ReadFile(u.File)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if token = string(text); token != "" && token != refused {
			return nil
		}
		v.What = "fetched a token"
		_, token, err = request(ctx, http.DefaultClient, http.MethodGet, u.Service+"/token", "", http.StatusOK)
		if err != nil {
			return err
		}
		temporary := fmt.Sprintf("%s.%d", u.File, os.Getpid()) // so that no process reads half a token
		if err := os.WriteFile(temporary, []byte(token), 0o600); err != nil {
			return err
		}
		return os.Rename(temporary, u.File)
	}
	if u.client == nil {
		err = readOrFetch(ctx)
	} else {
		err = u.client.Do(ctx, TokenLock, readOrFetch)
	}
	return token, err
}

// service issues access tokens, and accepts messages with a valid one:
//
//	GET  /token                                    a new token, which makes the last one invalid
//	POST /message  Authorization: Bearer TOKEN     204, or 401 if the token is invalid
type service struct {
	*localServer

	mu    sync.Mutex
	valid string
	count TokenJSON
}

const issueTime = 200 * time.Millisecond

func startService(ctx context.Context) (s *service, err error) {
	s = &service{}
	routes := http.NewServeMux()
	routes.HandleFunc("GET /token", s.issue)
	routes.HandleFunc("POST /message", s.receive)
	s.localServer, err = startServer(ctx, routes, func() {})
	return s, err
}

func (s *service) issue(w http.ResponseWriter, r *http.Request) {
	if backoff.Sleep(r.Context(), issueTime) != nil {
		return
	}
	token := rand.Text()
	s.mu.Lock()
	s.valid = token
	s.count.Fetches++
	s.mu.Unlock()
	fmt.Fprint(w, token)
}

func (s *service) receive(w http.ResponseWriter, r *http.Request) {
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count.Calls++
	if token == "" || token != s.valid {
		s.count.Failed++
		http.Error(w, "the token is invalid", http.StatusUnauthorized)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
