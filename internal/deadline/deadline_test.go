package deadline_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/internal/deadline"
)

type key struct{}

// Context behaves like context.WithTimeout, whether or not Done was called before. Only its cause is not
// its parent's.
func TestContextBehavesLikeWithTimeout(t *testing.T) {
	cause := errors.New("cause")
	type subject struct {
		context.Context
		end func()
	}
	kinds := map[string]func(parent context.Context, d time.Duration) subject{
		"context": func(parent context.Context, d time.Duration) subject {
			ctx, cancel := context.WithTimeout(parent, d)
			return subject{ctx, cancel}
		},
		"lazy": func(parent context.Context, d time.Duration) subject {
			ctx := deadline.After(parent, d)
			return subject{ctx, ctx.End}
		},
		"asked": func(parent context.Context, d time.Duration) subject {
			ctx := deadline.After(parent, d)
			ctx.Done()
			return subject{ctx, ctx.End}
		},
	}
	for name, open := range kinds {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				parent, cancel := context.WithCancelCause(context.WithValue(context.Background(), key{}, 7))
				expect := func(what string, s subject, err, cause error) {
					t.Helper()
					synctest.Wait()
					if !errors.Is(s.Err(), err) || s.Err() == nil != (err == nil) {
						t.Errorf("%s: Err is %v; want %v", what, s.Err(), err)
					}
					if got := context.Cause(s); !errors.Is(got, cause) || got == nil != (cause == nil) {
						t.Errorf("%s: the cause is %v; want %v", what, got, cause)
					}
					derived, stop := context.WithCancel(s)
					defer stop()
					synctest.Wait()
					if !errors.Is(derived.Err(), err) || derived.Err() == nil != (err == nil) {
						t.Errorf("%s: Err of a derived context is %v; want %v", what, derived.Err(), err)
					}
					select {
					case <-s.Done():
						if err == nil {
							t.Errorf("%s: done", what)
						}
					default:
						if err != nil {
							t.Errorf("%s: not done", what)
						}
					}
				}
				s := open(parent, time.Second)
				if at, ok := s.Deadline(); !ok || !at.Equal(time.Now().Add(time.Second)) {
					t.Errorf("the deadline is %v, %v", at, ok)
				}
				if s.Value(key{}) != 7 {
					t.Error("the parent's values are not there")
				}
				expect("at first", s, nil, nil)
				if s.Value(key{}) != 7 {
					t.Error("the parent's values are not there after Done")
				}
				time.Sleep(time.Second)
				expect("after its time", s, context.DeadlineExceeded, context.DeadlineExceeded)

				s = open(parent, time.Second)
				time.Sleep(2 * time.Second)
				if !errors.Is(s.Err(), context.DeadlineExceeded) {
					t.Errorf("after its time, never asked: %v", s.Err())
				}

				s = open(parent, time.Second)
				s.end()
				s.end()
				expect("ended", s, context.Canceled, context.Canceled)

				shorter, stop := context.WithTimeout(parent, time.Millisecond)
				defer stop()
				s = open(shorter, time.Hour)
				if at, _ := s.Deadline(); !at.Equal(time.Now().Add(time.Millisecond)) {
					t.Errorf("the deadline is %v; want the parent's", at)
				}

				want := context.Canceled
				if name == "context" {
					want = cause
				}
				s = open(parent, time.Second)
				cancel(cause)
				expect("after its parent's end", s, context.Canceled, want)
				expect("opened after its parent's end", open(parent, time.Second), context.Canceled, want)
			})
		})
	}
}
