package demo

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/dlock-go/dlock/internal/backoff"
)

// service issues access tokens, and accepts messages with a valid one:
//
//	GET  /token                                    a new token, which makes the last one invalid
//	POST /message  Authorization: Bearer TOKEN     204, or 401 if the token is invalid
type service struct {
	*localServer
	called func(failed bool)

	mu    sync.Mutex
	valid string
	count count
}

// count counts the requests of a service.
type count struct {
	fetches int // of tokens
	calls   int // messages
	failed  int // messages with an invalid token
}

// issueTime is how long the service takes to issue a token.
const issueTime = 200 * time.Millisecond

// startService starts the service. It calls called after each message, not concurrently.
func startService(ctx context.Context, called func(failed bool)) (s *service, err error) {
	s = &service{called: called}
	routes := http.NewServeMux()
	routes.HandleFunc("GET /token", s.issue)
	routes.HandleFunc("POST /message", s.receive)
	s.localServer, err = startServer(ctx, routes, func() {})
	return s, err
}

// end ends the service and returns its counts.
func (s *service) end() count {
	s.close()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count
}

func (s *service) issue(w http.ResponseWriter, r *http.Request) {
	if backoff.Sleep(r.Context(), issueTime) != nil {
		return
	}
	token := rand.Text()
	s.mu.Lock()
	s.valid = token
	s.count.fetches++
	s.mu.Unlock()
	fmt.Fprint(w, token)
}

func (s *service) receive(w http.ResponseWriter, r *http.Request) {
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	s.mu.Lock()
	defer s.mu.Unlock()
	failed := token == "" || token != s.valid
	s.count.calls++
	s.called(failed)
	if failed {
		s.count.failed++
		http.Error(w, "the token is invalid", http.StatusUnauthorized)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
