# A static binary on an empty base: nothing to update, nothing to exploit.
# VERSION is a build argument; the default is "unknown".
FROM docker.io/library/golang:1.26 AS build
ARG VERSION=unknown
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
# Reproducible: the binary has no paths and no build ID. `make dockerfile` compares it with
# that of `make image`.
RUN GOFLAGS=-buildvcs=false make build BIN=/generic-dp VERSION="${VERSION}"

FROM scratch
COPY --from=build /generic-dp /generic-dp-evict /
# uid 0 without capabilities: the kubelet's sockets belong to root.
USER 0:0
ENTRYPOINT ["/generic-dp"]
CMD ["serve"]
