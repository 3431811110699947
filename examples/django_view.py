"""A Django view whose POST takes effect once, on Django's own connection and in its own transaction.

A whole project in one file, which asks its own view twice: python examples/django_view.py
"""

import json

import django
from django.conf import settings
from django.db import connection, transaction
from django.http import HttpRequest, JsonResponse
from django.urls import path
from psycopg.conninfo import conninfo_to_dict

from fencepost import InvalidInput, run
from fencepost.kernel import idempotency
from fencepost.server_addresses import of_this_directory
from fencepost.settings import Settings


def grant(request: HttpRequest, player: int) -> JsonResponse:
    answer = {"player": player, "granted": "sword"}
    key = request.headers["Idempotency-Key"]
    try:
        with transaction.atomic():
            claim = run(connection, idempotency.claim(f"player:{player}", key, response=answer))
            if claim.claimed:
                with connection.cursor() as cursor:
                    cursor.execute("insert into inventory (player, item) values (%s, 'sword')", [player])
            elif not claim.replayed:
                return JsonResponse({"error": claim.outcome}, status=409)
    except InvalidInput as error:
        return JsonResponse({"error": str(error)}, status=400)
    return JsonResponse(claim.response, status=201 if claim.claimed else 200)


urlpatterns = [path("players/<int:player>/sword", grant)]


def configure() -> None:
    options = conninfo_to_dict(of_this_directory(Settings.load()).service_url)
    database = {"ENGINE": "django.db.backends.postgresql", "NAME": options.pop("dbname"), "OPTIONS": options}
    settings.configure(
        ROOT_URLCONF=__name__,
        ALLOWED_HOSTS=["testserver"],
        DATABASES={"default": database},
    )
    django.setup()


if __name__ == "__main__":
    configure()
    from django.test import Client

    for _ in range(2):
        response = Client().post("/players/7/sword", headers={"Idempotency-Key": "request-1"})
        print(response.status_code, json.loads(response.content))
