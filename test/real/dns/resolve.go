// Prints the IPv4 addresses of a name, as Go finds them: by itself, or by the C library where it is built with cgo.
package main

import (
	"context"
	"fmt"
	"net"
	"os"
)

func main() {
	found, err := net.DefaultResolver.LookupIP(context.Background(), "ip4", os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for _, address := range found {
		fmt.Println(address)
	}
}
