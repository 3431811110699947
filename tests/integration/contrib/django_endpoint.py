"""The endpoint on Django, on the connection of each thread."""

import json
from collections.abc import Generator
from contextlib import contextmanager

from django.core.exceptions import PermissionDenied
from django.db import connection
from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.test import Client, override_settings
from django.urls import path

from fencepost.contrib.django import idempotent
from tests.integration.contrib.endpoint import (
    DIE,
    INSERT,
    SCOPE,
    Endpoint,
    Reply,
    request_body,
    request_headers,
    returned,
)
from tests.integration.drivers.django_ports import configured


class DjangoEndpoint:
    def post(self, key: str | None, word: str, then: str = "return", path: str = "/notes") -> Reply:
        client = Client(raise_request_exception=False)
        try:
            response = client.post(
                path, request_body(word, then), content_type="application/json", headers=request_headers(key)
            )
            headers = {name.lower(): value for name, value in response.items()}
            return Reply(response.status_code, headers, response.content)
        finally:
            connection.close()


def write(request: HttpRequest) -> HttpResponseBase:
    note = json.loads(request.body)
    with connection.cursor() as cursor:
        cursor.execute(INSERT, (note["word"],))
        if note["then"] == "die":
            cursor.execute(DIE)
    if note["then"] == "abort":
        raise Http404("There is no such shelf.")
    if note["then"] == "stream":
        return StreamingHttpResponse([b"a", b"b"])
    status, headers, body = returned(note["word"], note["then"])
    return HttpResponse(body, status=status, headers=headers)


def user_of(request: HttpRequest) -> str:
    user = request.GET.get("user")
    if user is None:
        raise PermissionDenied
    return f"user:{user}"


urlpatterns = [
    path("notes", idempotent(scope=SCOPE)(write)),
    path("mine", idempotent(scope=user_of)(write)),
    path("optional", idempotent(scope=SCOPE, require_key=False)(write)),
]


@contextmanager
def serve(url: str) -> Generator[Endpoint]:
    with configured(url), override_settings(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["testserver"]):
        yield DjangoEndpoint()
