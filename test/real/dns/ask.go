// Asks for names over and over, each question by itself, and tells at the end of its input what became of them.
//
// ask EVERY NAME=ADDRESS...: an empty address is of a name that must not be told.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

type account struct {
	Asked int `json:"asked"`
	// Of the names with an address.
	Answered int `json:"answered"`
	Lost     int `json:"lost"`
	// Milliseconds from a lost question to the next that was answered, the longest.
	Away  int64    `json:"away"`
	Wrong []string `json:"wrong"`
}

type question struct {
	began    time.Time
	answered bool
}

func main() {
	every, err := time.ParseDuration(os.Args[1])
	if err != nil {
		panic(err)
	}
	over := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(over)
	}()
	var (
		lock   sync.Mutex
		tasks  sync.WaitGroup
		result = account{Wrong: []string{}}
		asked  []question
	)
	resolver := net.Resolver{PreferGo: true}
	ask := func(name, address string) {
		defer tasks.Done()
		began := time.Now()
		// Shorter than the resolver waits before it asks again.
		limit, cancel := context.WithTimeout(context.Background(), 4500*time.Millisecond)
		defer cancel()
		found, err := resolver.LookupIP(limit, "ip4", name)
		lock.Lock()
		defer lock.Unlock()
		result.Asked++
		if err == nil && (len(found) != 1 || found[0].String() != address) {
			result.Wrong = append(result.Wrong, fmt.Sprint(name, " is ", found))
		}
		if address == "" {
			return
		}
		asked = append(asked, question{began, err == nil})
	}
	ticks := time.NewTicker(every)
	for going := true; going; {
		select {
		case <-ticks.C:
			for _, pair := range os.Args[2:] {
				name, address, _ := strings.Cut(pair, "=")
				tasks.Add(1)
				go ask(name, address)
			}
		case <-over:
			going = false
		}
	}
	tasks.Wait()
	slices.SortFunc(asked, func(one, other question) int { return one.began.Compare(other.began) })
	var since time.Time
	for _, each := range asked {
		if !each.answered {
			result.Lost++
			if since.IsZero() {
				since = each.began
			}
			continue
		}
		result.Answered++
		if !since.IsZero() {
			result.Away = max(result.Away, each.began.Sub(since).Milliseconds())
			since = time.Time{}
		}
	}
	text, err := json.Marshal(result)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(text))
}
