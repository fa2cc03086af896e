// Package tokens is a scenario in which an access token becomes invalid because another
// process has fetched a new one.
package tokens

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Service issues access tokens, and accepts messages with a valid one:
//
//	GET  /token                                    a new token, which makes the last one invalid
//	POST /message  Authorization: Bearer TOKEN     204, or 401 if the token is invalid
type Service struct {
	server   *http.Server
	listener net.Listener
	ended    chan struct{}
	called   func(failed bool)

	mu    sync.Mutex
	valid string
	count Count
}

// Count counts the requests of a service.
type Count struct {
	Fetches int // of tokens
	Calls   int // messages
	Failed  int // messages with an invalid token
}

// issueTime is how long the service takes to issue a token. A process that looks for a
// token meanwhile finds none.
const issueTime = 200 * time.Millisecond

// StartService starts the service on a free port. It calls called after each message, not
// concurrently.
func StartService(ctx context.Context, called func(failed bool)) (*Service, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	s := &Service{listener: listener, ended: make(chan struct{}), called: called}
	routes := http.NewServeMux()
	routes.HandleFunc("GET /token", s.issue)
	routes.HandleFunc("POST /message", s.receive)
	s.server = &http.Server{Handler: routes, ReadHeaderTimeout: time.Minute}
	go func() {
		defer close(s.ended)
		_ = s.server.Serve(listener) // if it ends before Close, the callers get an error
	}()
	return s, nil
}

// URL returns the address of the service.
func (s *Service) URL() string { return "http://" + s.listener.Addr().String() }

// Close ends the service and returns its counts.
func (s *Service) Close() Count {
	_ = s.server.Close() // no request is pending
	<-s.ended
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count
}

func (s *Service) issue(w http.ResponseWriter, r *http.Request) {
	select {
	case <-time.After(issueTime):
	case <-r.Context().Done():
		return
	}
	token := rand.Text()
	s.mu.Lock()
	s.valid = token
	s.count.Fetches++
	s.mu.Unlock()
	fmt.Fprint(w, token)
}

func (s *Service) receive(w http.ResponseWriter, r *http.Request) {
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	s.mu.Lock()
	defer s.mu.Unlock()
	failed := token == "" || token != s.valid
	s.count.Calls++
	s.called(failed)
	if failed {
		s.count.Failed++
		http.Error(w, "the token is invalid", http.StatusUnauthorized)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
