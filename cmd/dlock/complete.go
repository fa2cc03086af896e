package main

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/cmd/dlock/internal/stores"
	"github.com/dlock-go/dlock/cmd/dlock/internal/terminal"
	"github.com/dlock-go/dlock/driver"
	"github.com/spf13/cobra"
)

// complete returns what entry returns for the held locks that start with prefix, without
// empty entries. Errors are ignored, because a shell cannot show them.
func (a *app) complete(cmd *cobra.Command, prefix string, entry func(driver.Info) string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), 2*time.Second) // the store may not answer
	defer cancel()
	var entries []string
	_ = a.withClient(ctx, "", func(client *dlock.Client, _ *stores.Store) error {
		for info, err := range client.Locks(ctx, prefix) {
			if err != nil {
				return err // closing must not wait for a store that does not answer
			}
			if text := entry(info); text != "" {
				entries = append(entries, text)
			}
		}
		return nil
	})
	return entries, cobra.ShellCompDirectiveNoFileComp
}

// completeNames offers the names of held locks, except those that a shell would have to quote.
func (a *app) completeNames(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.complete(cmd, prefix, func(info driver.Info) string {
		if terminal.Quote(info.Name) != info.Name {
			return ""
		}
		return info.Name
	})
}

// completeToken offers the token of the NAME on the command line, or else every token.
func (a *app) completeToken(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return a.complete(cmd, strings.Join(args, ""), func(info driver.Info) string {
		if len(args) > 0 && info.Name != args[0] {
			return ""
		}
		return cobra.CompletionWithDesc(strconv.FormatUint(info.Token, 10), terminal.Quote(info.Name)+" held by "+info.Holder.String())
	})
}
