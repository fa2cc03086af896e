package stories

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dlock-go/dlock/internal/backoff"
	"github.com/dlock-go/dlock/lab/stage"
)

var token = Story{
	Number: 30, Name: "token", TTL: 10 * time.Second,
	Title: "Several processes fetch a token that makes the last one invalid",
	Tells: "Ten processes send messages to a service that wants an access token, of which only the last that was fetched is valid. They share the token in a file: a process that finds none there, or was refused, fetches a new one and writes it. " +
		"Without a lock many processes find none at the same time, and each token is made invalid by the next one. With a lock around reading and fetching, one process fetches, and the others find its token.",
	Guards: []Case{caught("none", stage.TwoHolders), {"dlock", []stage.Verdict{stage.Held}}},
	Play: func(s *stage.Stage) {
		o := s.Options
		o.Processes, o.Requests = cmp.Or(o.Processes, 10), cmp.Or(o.Requests, 10)
		s.Stock("calls that are not refused", o.Processes*o.Requests)
		counts := startService()
		defer counts.Close()
		users := s.Programs(o.Processes, "user", userTask{counts.URL, filepath.Join(s.Folder(), "token"), o.Requests})
		begun := time.Now()
		for _, user := range users {
			s.Must(user.Begin())
		}
		for _, user := range users {
			s.Must(user.Await(s.Context()))
		}
		counts.mu.Lock()
		defer counts.mu.Unlock()
		s.Figure("processes", o.Processes)
		s.Figure("calls", counts.calls)
		s.Figure("failed", counts.failed)
		s.Figure("fetches", counts.fetches)
		s.Detail("seconds", time.Since(begun).Round(time.Millisecond).Seconds())
		if s.Ours() && (counts.failed > 0 || counts.fetches != 1) {
			s.Must(fmt.Errorf("%d calls failed, and %d tokens were fetched: with a lock no call should fail, and one token be fetched",
				counts.failed, counts.fetches))
		}
	},
}

type userTask struct {
	Service string // URL
	File    string // through which the processes share the token
	Calls   int
}

// user is a process that sends messages, for which it needs a token.
type user struct {
	userTask
	*stage.Worker
}

func runUser(ctx context.Context, w *stage.Worker, task userTask) error {
	w.Ready("")
	select {
	case <-w.Begun:
	case <-ctx.Done():
		return ctx.Err()
	}
	return (&user{task, w}).work(ctx)
}

// work sends the messages. After one that fails, the next one has another token.
func (u *user) work(ctx context.Context) error {
	token, err := u.token(ctx, "", 0)
	if err != nil {
		return err
	}
	// All messages take longer than issuing a token, so that a user notices an invalid one.
	ticker := time.NewTicker(2 * issueTime / time.Duration(u.Calls))
	defer ticker.Stop()
	for range u.Calls {
		status, _, err := request(ctx, http.DefaultClient, http.MethodPost, u.Service+"/message", token,
			http.StatusNoContent, http.StatusUnauthorized)
		if err != nil {
			return err
		}
		if status == http.StatusUnauthorized {
			if token, err = u.token(ctx, token, stage.Now()); err != nil {
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

// token returns the token that the processes share. Without a token, or with only the one that was
// refused at a time, it fetches a new one. Under the lock just one process does.
func (u *user) token(ctx context.Context, refused string, at time.Duration) (string, error) {
	held, err := u.Locker.Lock(ctx)
	if err != nil {
		return "", err
	}
	v := stage.Visit{From: stage.Now(), Fell: at, Text: "found a token"}
	text, err := os.ReadFile(u.File)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	token := string(text)
	if err == nil && (token == "" || token == refused) {
		v.Text = "fetched a token"
		token, err = u.fetch(ctx)
	}
	v.To = stage.Now()
	u.Visited(v)
	return token, errors.Join(err, held.Unlock(ctx))
}

// fetch gets a new token and writes it into the file.
func (u *user) fetch(ctx context.Context) (string, error) {
	_, token, err := request(ctx, http.DefaultClient, http.MethodGet, u.Service+"/token", "", http.StatusOK)
	if err != nil {
		return "", err
	}
	temporary := fmt.Sprintf("%s.%d", u.File, os.Getpid()) // so that no process reads half a token
	if err := os.WriteFile(temporary, []byte(token), 0o600); err != nil {
		return "", err
	}
	return token, os.Rename(temporary, u.File)
}

// request returns the status and the text of an answer. It fails if the status is not wanted.
func request(ctx context.Context, client *http.Client, method, to, token string, wanted ...int) (status int, text string, err error) {
	r, err := http.NewRequestWithContext(ctx, method, to, nil)
	if err != nil {
		return 0, "", err
	}
	r.Header.Set("Authorization", "Bearer "+token)
	answer, err := client.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	text = strings.TrimSpace(string(body))
	if err == nil && !slices.Contains(wanted, answer.StatusCode) {
		err = errors.New(text)
	}
	return answer.StatusCode, text, err
}

// service issues access tokens, and accepts messages with a valid one:
//
//	GET  /token                                    a new token, which makes the last one invalid
//	POST /message  Authorization: Bearer TOKEN     204, or 401 if the token is invalid
type service struct {
	*httptest.Server

	mu                     sync.Mutex
	valid                  string
	calls, failed, fetches int
}

const issueTime = 200 * time.Millisecond

func startService() *service {
	s := &service{}
	routes := http.NewServeMux()
	routes.HandleFunc("GET /token", s.issue)
	routes.HandleFunc("POST /message", s.receive)
	s.Server = httptest.NewServer(routes)
	return s
}

func (s *service) issue(w http.ResponseWriter, r *http.Request) {
	if backoff.Sleep(r.Context(), issueTime) != nil {
		return
	}
	token := rand.Text()
	s.mu.Lock()
	s.valid = token
	s.fetches++
	s.mu.Unlock()
	fmt.Fprint(w, token)
}

func (s *service) receive(w http.ResponseWriter, r *http.Request) {
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	if token == "" || token != s.valid {
		s.failed++
		http.Error(w, "the token is invalid", http.StatusUnauthorized)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
