package main

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/spf13/cobra"
)

// completeNames offers the names of held locks to the shell. Whoever presses
// Tab does not wait for a store that does not answer, and wants no errors.
func (a *app) completeNames(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), 2*time.Second)
	defer cancel()
	var names []string
	_ = a.withClient(ctx, func(client *dlock.Client, _ *openStore) error {
		for info, err := range client.Locks(ctx, prefix) {
			if err != nil {
				return err
			}
			if harmless(info.Name) == info.Name { // the others need quoting that shells do differently
				names = append(names, info.Name)
			}
		}
		return nil
	})
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeToken offers the token with which the NAME on the command line is held, or
// every token if there is no NAME yet.
func (a *app) completeToken(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), 2*time.Second)
	defer cancel()
	var tokens []string
	_ = a.withClient(ctx, func(client *dlock.Client, _ *openStore) error {
		for info, err := range client.Locks(ctx, strings.Join(args, "")) {
			if err != nil {
				return err
			}
			if len(args) == 0 || info.Name == args[0] {
				tokens = append(tokens, cobra.CompletionWithDesc(strconv.FormatUint(info.Token, 10),
					harmless(info.Name)+" held by "+harmlessHolder(info.Holder)))
			}
		}
		return nil
	})
	return tokens, cobra.ShellCompDirectiveNoFileComp
}
